/* {{ spdx }} */
/* A core behind memory-mapped registers (AXI4-Lite, Wishbone, or the registers beside AXI4-Stream), from C99: no
 * library, no memory of its own, no operating system. docs/integrate.md of rtlstm explains it.
 *
 * Compile rtlstm_mmio.c once, with the folder of any build's rtlstm_registers.h among the include folders: the
 * offsets of registers are the same in all. A file that drives a build includes that build's header and this one,
 * and says once:
 *
 *     static const rtlstm_build vad = RTLSTM_MMIO_BUILD;
 *
 * Accesses are loads and stores of 32 bits at `base` plus the register's offset. For any other kind, define the
 * macros RTLSTM_MMIO_LOAD(address) and RTLSTM_MMIO_STORE(address, word). */
#ifndef RTLSTM_MMIO_H
#define RTLSTM_MMIO_H

#include <stddef.h>
#include <stdint.h>

/* What every call returns. After TIMEOUT, REFUSED, OTHER_STREAM and NOT_LOADED, the core has been reset or was never
 * whole: all states are zero, and a loadable core must be loaded again. */
enum {
  RTLSTM_MMIO_OK = 0,
  RTLSTM_MMIO_NOT_A_CORE = -1,   /* ID reads something else: wrong address, no clock, no bitstream */
  RTLSTM_MMIO_OTHER_MAP = -2,    /* VERSION has another major number */
  RTLSTM_MMIO_OTHER_BUILD = -3,  /* BUILD, SHAPE or CAPACITY are another build's */
  RTLSTM_MMIO_BAD_IMAGE = -4,    /* not a weights.bin, or damaged */
  RTLSTM_MMIO_OTHER_IMAGE = -5,  /* the weights.bin of another build */
  RTLSTM_MMIO_NOT_LOADED = -6,   /* no step before rtlstm_mmio_load has succeeded */
  RTLSTM_MMIO_TIMEOUT = -7,      /* no progress within `polls` reads */
  RTLSTM_MMIO_REFUSED = -8,      /* LINK_ERRORS has counted */
  RTLSTM_MMIO_BAD_STREAM = -9,   /* there is no such stream */
  RTLSTM_MMIO_BAD_VALUE = -10,   /* an input or state needs more bits than it has, or is no token; nothing was sent */
  RTLSTM_MMIO_OTHER_STREAM = -11 /* an output belongs to a stream whose turn it is not */
};

/* h of a recurrent layer, or the state of its cells: where it is in a stream's rows, and its format. */
typedef struct {
  uint32_t row, units, bits, fraction_bits;
} rtlstm_layer;

/* What the driver knows of a build: RTLSTM_MMIO_BUILD, from the build's rtlstm_registers.h. */
typedef struct {
  uint32_t number, network; /* of BUILD, and of weights.bin */
  uint32_t inputs, tokens, outputs, streams, networks, data_bits, output_bits; /* no tokens: values */
  uint32_t macs, gate_units, vector_rows, cell_rows, copy_rows; /* of a stream, but for the first two */
  uint32_t h_layers, c_layers;
  const rtlstm_layer *h, *c;
} rtlstm_build;

#define RTLSTM_MMIO_BUILD                                                                                  \
  {                                                                                                        \
    RTLSTM_BUILD_NUMBER, RTLSTM_NETWORK_NUMBER, RTLSTM_INPUTS, RTLSTM_TOKENS, RTLSTM_OUTPUTS,              \
        RTLSTM_STREAMS, RTLSTM_NETWORKS, RTLSTM_DATA_BITS, RTLSTM_OUTPUT_BITS, RTLSTM_MACS,                \
        RTLSTM_CELLS_BANKS, RTLSTM_STREAM_VECTORS, RTLSTM_STREAM_CELLS, RTLSTM_COPY_ROWS,                  \
        RTLSTM_H_LAYERS, RTLSTM_C_LAYERS,                                                                  \
        (const rtlstm_layer[])RTLSTM_H_LAYOUT, (const rtlstm_layer[])RTLSTM_C_LAYOUT                       \
  }

typedef struct {
  uintptr_t base;
  const rtlstm_build *build;
  uint32_t polls;  /* reads without progress before a call gives up; rtlstm_mmio_open sets 1,000,000 */
  uint32_t errors; /* of LINK_ERRORS, when it was last looked at */
  int whole;       /* 0 while an image is partly written */
} rtlstm_mmio;

/* Check that the core at `base` is this build, and reset it: an earlier program may have left steps there. Weights
 * stay; a loadable core loses its program. */
int rtlstm_mmio_open(rtlstm_mmio *core, uintptr_t base, const rtlstm_build *build);

/* Load the weights.bin of `build`, which is that of rtlstm_mmio_open or, for a loadable core, another one for the same
 * hardware. The image may have any alignment. Its CRC is checked before anything is written. Resets all streams. A core of several
 * networks has this one as network 0, and no other. */
int rtlstm_mmio_load(rtlstm_mmio *core, const rtlstm_build *build, const void *image, size_t size);

/* Reset the core and the data path. */
int rtlstm_mmio_restart(rtlstm_mmio *core);

/* Reset one stream to zero state. Finishes the steps that were sent. */
int rtlstm_mmio_reset(rtlstm_mmio *core, uint32_t stream);

/* A stream's state in integers: h of each recurrent layer as the array reads it, RTLSTM_H_VALUES of them, and the
 * state of each layer's cells, RTLSTM_C_VALUES; layer by layer, with the formats of `h` and `c` of the build. */
int rtlstm_mmio_read_state(rtlstm_mmio *core, uint32_t stream, int32_t *h, int32_t *c);
int rtlstm_mmio_write_state(rtlstm_mmio *core, uint32_t stream, const int32_t *h, const int32_t *c);

/* Steps need data FIFOs: builds of --bus axilite and wishbone. Inputs are RTLSTM_INPUTS integers a step, outputs
 * RTLSTM_OUTPUTS. */

/* One step: send it and wait for its output. */
int rtlstm_mmio_step(rtlstm_mmio *core, uint32_t stream, const int32_t *x, int32_t *y);

/* Several steps of a stream, with as many at once in the core as its FIFOs hold. */
int rtlstm_mmio_run(rtlstm_mmio *core, uint32_t stream, const int32_t *x, int32_t *y, size_t steps);

/* For steps of several streams, or other work in between: begin a step, waiting for room; whether an output stands
 * ready (1 or 0); and take it, waiting for it. Outputs come in the order of the steps. A core holds four steps, and
 * four outputs: who sends more before taking any gets TIMEOUT. */
int rtlstm_mmio_send(rtlstm_mmio *core, uint32_t stream, const int32_t *x);
int rtlstm_mmio_ready(rtlstm_mmio *core);
int rtlstm_mmio_receive(rtlstm_mmio *core, uint32_t *stream, int32_t *y);

/* A sentence for a code. */
const char *rtlstm_mmio_message(int code);

#endif
