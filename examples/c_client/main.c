/* Steps from standard input, one a line, through stream 0; their outputs to standard output. All integers, in the
 * build's own formats. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "rtlstm.h"

enum { MOST = 500 };

int main(int count, char **arguments) {
  int32_t x[MOST], y[MOST];
  rtlstm device;
  if (count != 6) {
    fprintf(stderr, "usage: %s LINE WEIGHTS INPUTS OUTPUTS BITS < steps > outputs\n", arguments[0]);
    return 2;
  }
  unsigned inputs = (unsigned)atoi(arguments[3]), outputs = (unsigned)atoi(arguments[4]);
  unsigned bits = (unsigned)atoi(arguments[5]);
  if (inputs < 1 || inputs > MOST || outputs < 1 || outputs > MOST || bits < 1 || bits > 18) {
    fprintf(stderr, "error: 1 to %d inputs and outputs of 1 to 18 bits\n", MOST);
    return 2;
  }
  if (rtlstm_open(&device, arguments[1]) || rtlstm_load(&device, arguments[2])) goto failed;
  fprintf(stderr, "build %08" PRIx32 ", weights loaded\n", device.build);
  for (unsigned taken = 0; scanf("%" SCNd32, &x[taken]) == 1;) {
    if (++taken < inputs) continue;
    taken = 0;
    if (rtlstm_step(&device, 0, x, inputs, y, outputs, bits)) goto failed;
    for (unsigned i = 0; i < outputs; ++i) printf("%" PRId32 "%c", y[i], i + 1 < outputs ? ' ' : '\n');
  }
  fprintf(stderr, "%u requests sent again\n", device.resent);
  rtlstm_close(&device);
  return 0;
failed:
  fprintf(stderr, "error: %s\n", device.error);
  rtlstm_close(&device);
  return 1;
}
