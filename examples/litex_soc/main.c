/* Runs on the SoC's CPU: loads the core's weights, takes steps and compares them with the golden model's. */
#include "csr.h"
#include "mem.h"

#include "rtlstm_registers.h"

#include "rtlstm_mmio.h"

#include "steps.h"

static const rtlstm_build build = RTLSTM_MMIO_BUILD;
extern const uint8_t weights[], weights_end[];

static volatile uint32_t *csr(uintptr_t address) { return (volatile uint32_t *)address; }

static void print(const char *text) {
  for (; *text; ++text) {
    while (*csr(CSR_UART_TXFULL_ADDR)) {
    }
    *csr(CSR_UART_RXTX_ADDR) = (uint8_t)*text;
  }
}

static void print_number(uint32_t number) {
  char digits[11], *first = digits + sizeof digits - 1;
  *first = 0;
  do *--first = (char)('0' + number % 10);
  while (number /= 10);
  print(first);
}

static int run(rtlstm_mmio *core, uint32_t *different) {
  int32_t y[RTLSTM_OUTPUTS];
  int code = rtlstm_mmio_open(core, CORE_BASE, &build);
  if (!code) code = rtlstm_mmio_load(core, &build, weights, (size_t)(weights_end - weights));
  for (unsigned step = 0; !code && step < STEPS; ++step) {
    code = rtlstm_mmio_step(core, 0, x[step], y);
    for (unsigned i = 0; i < RTLSTM_OUTPUTS; ++i) *different += y[i] != golden[step][i];
  }
  return code;
}

int main(void) {
  rtlstm_mmio core;
  uint32_t different = 0;
  int code = run(&core, &different);
  if (code) {
    print("FAIL: ");
    print(rtlstm_mmio_message(code));
  } else {
    print(different ? "FAIL: " : "PASS: ");
    print_number(different);
    print(" of ");
    print_number(STEPS * RTLSTM_OUTPUTS);
    print(" outputs differ from the golden model; the last step took ");
    print_number(*(volatile uint32_t *)(core.base + RTLSTM_LATENCY));
    print(" cycles");
  }
  print("\n\4");
  return 0;
}
