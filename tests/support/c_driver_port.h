/* Accesses of the C driver in a test: they go to whoever has set these functions. */
#include <stdint.h>

extern uint32_t (*port_load)(uintptr_t address);
extern void (*port_store)(uintptr_t address, uint32_t word);

#define RTLSTM_MMIO_LOAD(address) port_load(address)
#define RTLSTM_MMIO_STORE(address, word) port_store(address, word)
