/* A build for the C driver, and a core, as a test calls them. */
#include "rtlstm_registers.h"

#include "rtlstm_mmio.h"

uint32_t (*port_load)(uintptr_t address);
void (*port_store)(uintptr_t address, uint32_t word);

const rtlstm_build port_build = RTLSTM_MMIO_BUILD;
rtlstm_mmio port_core;

void port_set_polls(uint32_t polls) { port_core.polls = polls; }
