/* {{ spdx }} */
/* See rtlstm_mmio.h. */
#include "rtlstm_mmio.h"

#include "rtlstm_registers.h"

#ifndef RTLSTM_MMIO_LOAD
#define RTLSTM_MMIO_LOAD(address) (*(const volatile uint32_t *)(address))
#define RTLSTM_MMIO_STORE(address, word) (*(volatile uint32_t *)(address) = (word))
#endif

enum { POLLS = 1000000 };

static uint32_t load(const rtlstm_mmio *core, uint32_t offset) { return RTLSTM_MMIO_LOAD(core->base + offset); }

static void store(const rtlstm_mmio *core, uint32_t offset, uint32_t word) {
  RTLSTM_MMIO_STORE(core->base + offset, word);
}

/* Two's complement in `bits` bits. */
static int32_t extend(uint32_t word, uint32_t bits) {
  uint32_t sign = (uint32_t)1 << (bits - 1), value = (word & (2 * sign - 1)) ^ sign;
  return value < sign ? -(int32_t)(sign - value - 1) - 1 : (int32_t)(value - sign);
}

static int fits(const int32_t *values, size_t count, uint32_t bits) {
  for (size_t i = 0; i < count; ++i) {
    if (extend((uint32_t)values[i], bits) != values[i]) return 0;
  }
  return 1;
}

int rtlstm_mmio_restart(rtlstm_mmio *core) {
  store(core, RTLSTM_CONTROL, RTLSTM_CONTROL_RESET_MASK);
  core->errors = load(core, RTLSTM_LINK_ERRORS);
  return RTLSTM_MMIO_OK;
}

/* A call has failed while steps may be in progress. */
static int fail(rtlstm_mmio *core, int code) {
  rtlstm_mmio_restart(core);
  return code;
}

static int check_accesses(rtlstm_mmio *core) {
  return load(core, RTLSTM_LINK_ERRORS) == core->errors ? RTLSTM_MMIO_OK : fail(core, RTLSTM_MMIO_REFUSED);
}

/* Accesses to DATA and COMMAND wait for the core, and with them the processor: wait here instead, with an end. */
static int await_idle(rtlstm_mmio *core) {
  for (uint32_t poll = 0; poll < core->polls; ++poll) {
    if (!(load(core, RTLSTM_STATUS) & RTLSTM_STATUS_BUSY_MASK)) return RTLSTM_MMIO_OK;
  }
  return fail(core, RTLSTM_MMIO_TIMEOUT);
}

static int has_network(const rtlstm_mmio *core) {
  const rtlstm_build *build = core->build;
  uint32_t shape = (build->outputs & 0xFFFF) << RTLSTM_SHAPE_OUTPUTS_SHIFT | (build->inputs & 0xFFFF);
  return core->whole && !(load(core, RTLSTM_STATUS) & RTLSTM_STATUS_STOPPED_MASK) && load(core, RTLSTM_SHAPE) == shape;
}

static uint32_t capacity(const rtlstm_build *build) {
  return build->output_bits << RTLSTM_CAPACITY_OUTPUT_BITS_SHIFT |
         build->data_bits << RTLSTM_CAPACITY_DATA_BITS_SHIFT | (build->networks - 1) << RTLSTM_CAPACITY_NETWORKS_SHIFT |
         build->streams << RTLSTM_CAPACITY_STREAMS_SHIFT;
}

int rtlstm_mmio_open(rtlstm_mmio *core, uintptr_t base, const rtlstm_build *build) {
  core->base = base;
  core->build = build;
  core->polls = POLLS;
  core->whole = 1;
  if (load(core, RTLSTM_ID) != RTLSTM_IDENTITY) return RTLSTM_MMIO_NOT_A_CORE;
  if ((load(core, RTLSTM_VERSION) ^ RTLSTM_VERSION_NUMBER) & RTLSTM_VERSION_MAJOR_MASK) return RTLSTM_MMIO_OTHER_MAP;
  if (load(core, RTLSTM_BUILD) != build->number || load(core, RTLSTM_CAPACITY) != capacity(build)) {
    return RTLSTM_MMIO_OTHER_BUILD;
  }
  return rtlstm_mmio_restart(core);
}

/* weights.bin: docs/ports.md of rtlstm has its fields. */
enum { MAGIC_BYTES = 8, LENGTH_AT = 12, HASH_AT = 20, SEGMENTS_AT = 52, HEAD = 56, SEGMENT = 16, CRC_BYTES = 4 };

static uint32_t little(const uint8_t *bytes) {
  return bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 | (uint32_t)bytes[3] << 24;
}

static uint32_t crc32(const uint8_t *bytes, size_t count) {
  static const uint32_t table[16] = {0x00000000, 0x1DB71064, 0x3B6E20C8, 0x26D930AC, 0x76DC4190, 0x6B6B51F4,
                                     0x4DB26158, 0x5005713C, 0xEDB88320, 0xF00F9344, 0xD6D6A3E8, 0xCB61B38C,
                                     0x9B64C2B0, 0x86D3D2D4, 0xA00AE278, 0xBDBDF21C};
  uint32_t sum = 0xFFFFFFFF;
  while (count--) {
    sum ^= *bytes++;
    sum = sum >> 4 ^ table[sum & 15];
    sum = sum >> 4 ^ table[sum & 15];
  }
  return ~sum;
}

/* Whether the segments' words are all there, and no more. */
static int is_whole(const uint8_t *image, size_t size) {
  size_t segments = little(image + SEGMENTS_AT), left = (size - HEAD - CRC_BYTES) / 4;
  if (size % 4 || segments > left / (SEGMENT / 4)) return 0;
  left -= segments * (SEGMENT / 4);
  for (size_t i = 0; i < segments; ++i) {
    const uint8_t *head = image + HEAD + SEGMENT * i;
    size_t banks = little(head + 4), rows = little(head + 8), words = little(head + 12);
    if (words == 0 || (rows && banks > left / words / rows)) return 0;
    if (little(head) == RTLSTM_REGION_PROGRAM && rows == 0) return 0;
    left -= banks * rows * words;
  }
  return left == 0;
}

static int check_image(const rtlstm_build *build, const uint8_t *image, size_t size) {
  static const uint8_t magic[MAGIC_BYTES] = {'R', 'T', 'L', 'S', 'T', 'M', 'W', 'I'};
  if (size < HEAD + CRC_BYTES || little(image + LENGTH_AT) != size) return RTLSTM_MMIO_BAD_IMAGE;
  for (size_t i = 0; i < MAGIC_BYTES; ++i) {
    if (image[i] != magic[i]) return RTLSTM_MMIO_BAD_IMAGE;
  }
  if (crc32(image, size - CRC_BYTES) != little(image + size - CRC_BYTES) || !is_whole(image, size)) {
    return RTLSTM_MMIO_BAD_IMAGE;
  }
  for (unsigned i = 0; i < 4; ++i) {
    if (image[HASH_AT + i] != (uint8_t)(build->network >> (24 - 8 * i))) return RTLSTM_MMIO_OTHER_IMAGE;
  }
  return RTLSTM_MMIO_OK;
}

static void point(const rtlstm_mmio *core, uint32_t region, uint32_t bank, uint32_t row) {
  store(core, RTLSTM_SELECT, region << RTLSTM_SELECT_REGION_SHIFT | bank);
  store(core, RTLSTM_ROW, row);
}

/* A program goes first but for its last row: its first word stops the core, and its last one starts it, so that no
 * step meets parts of two networks. */
static void write_segments(const rtlstm_mmio *core, const uint8_t *image) {
  enum { STOP, OTHERS, START };
  size_t segments = little(image + SEGMENTS_AT);
  for (int turn = STOP; turn <= START; ++turn) {
    const uint8_t *words = image + HEAD + SEGMENT * segments;
    for (size_t i = 0; i < segments; ++i) {
      const uint8_t *head = image + HEAD + SEGMENT * i;
      uint32_t region = little(head), banks = little(head + 4), rows = little(head + 8);
      size_t row_bytes = 4 * (size_t)little(head + 12);
      uint32_t first = turn == START ? rows - 1 : 0, end = turn == STOP ? rows - 1 : rows;
      for (uint32_t bank = 0; bank < banks; ++bank, words += rows * row_bytes) {
        const uint8_t *word = words + first * row_bytes;
        if ((region == RTLSTM_REGION_PROGRAM) != (turn != OTHERS) || first >= end) continue;
        point(core, region, bank, first);
        for (; word != words + end * row_bytes; word += 4) store(core, RTLSTM_DATA, little(word));
      }
    }
  }
}

int rtlstm_mmio_load(rtlstm_mmio *core, const rtlstm_build *build, const void *image, size_t size) {
  int code = check_image(build, image, size);
  if (code) return code;
  if (load(core, RTLSTM_BUILD) != build->number) return RTLSTM_MMIO_OTHER_BUILD;
  if ((code = await_idle(core))) return code;
  core->whole = 0;
  write_segments(core, image);
  if ((code = check_accesses(core))) return code;
  core->whole = 1;
  core->build = build;
  for (uint32_t stream = 0; stream < build->streams; ++stream) {
    if ((code = rtlstm_mmio_reset(core, stream))) return code;
  }
  return has_network(core) ? RTLSTM_MMIO_OK : RTLSTM_MMIO_OTHER_BUILD;
}

static int begin_command(rtlstm_mmio *core, uint32_t stream) {
  int code = stream < core->build->streams ? await_idle(core) : RTLSTM_MMIO_BAD_STREAM;
  if (!code) store(core, RTLSTM_STREAM, stream);
  return code;
}

int rtlstm_mmio_reset(rtlstm_mmio *core, uint32_t stream) {
  int code = begin_command(core, stream);
  if (code) return code;
  store(core, RTLSTM_COMMAND, RTLSTM_COMMAND_RESET);
  return check_accesses(core);
}

/* Fields side by side in a row's words: bits that were read and not taken, or that wait to be written. */
typedef struct {
  uint32_t word, left;
} packed;

static uint32_t mask(uint32_t bits) { return bits < 32 ? ((uint32_t)1 << bits) - 1 : 0xFFFFFFFF; }

static uint32_t take(const rtlstm_mmio *core, packed *row, uint32_t bits) {
  uint32_t value = row->word, more = bits > row->left ? bits - row->left : 0;
  if (more) {
    uint32_t next = load(core, RTLSTM_DATA);
    value |= row->left ? next << row->left : next;
    row->word = more < 32 ? next >> more : 0;
    row->left = 32 - more;
  } else {
    row->word = bits < 32 ? row->word >> bits : 0;
    row->left -= bits;
  }
  return value & mask(bits);
}

static void give(const rtlstm_mmio *core, packed *row, uint32_t bits, uint32_t value) {
  uint32_t room = 32 - row->left;
  value &= mask(bits);
  row->word |= value << row->left;
  row->left += bits;
  if (row->left < 32) return;
  store(core, RTLSTM_DATA, row->word);
  row->left -= 32;
  row->word = room < bits ? value >> room : 0;
}

/* h of a layer, from this row of the vector memory: `macs` values a row, the last row padded with zeros. */
static void read_h(const rtlstm_mmio *core, const rtlstm_layer *layer, uint32_t row, int32_t *h) {
  const rtlstm_build *build = core->build;
  packed bits = {0, 0};
  point(core, RTLSTM_REGION_VECTORS, 0, row);
  for (uint32_t i = 0; i < layer->units; ++i) {
    if (i % build->macs == 0) bits.left = bits.word = 0;
    h[i] = extend(take(core, &bits, layer->bits), layer->bits);
  }
}

static void write_h(const rtlstm_mmio *core, const rtlstm_layer *layer, uint32_t row, const int32_t *h) {
  const rtlstm_build *build = core->build;
  point(core, RTLSTM_REGION_VECTORS, 0, row);
  for (uint32_t first = 0; first < layer->units; first += build->macs) {
    packed bits = {0, 0};
    for (uint32_t i = first; i < first + build->macs; ++i) {
      give(core, &bits, layer->bits, i < layer->units ? (uint32_t)h[i] : 0);
    }
    if (bits.left) store(core, RTLSTM_DATA, bits.word);
  }
}

/* The cells of a layer: unit n is in bank n % gate_units. A row is one word. */
static void read_c(const rtlstm_mmio *core, const rtlstm_layer *layer, uint32_t row, int32_t *c) {
  for (uint32_t bank = 0; bank < core->build->gate_units; ++bank) {
    point(core, RTLSTM_REGION_CELLS, bank, row);
    for (uint32_t i = bank; i < layer->units; i += core->build->gate_units) {
      c[i] = extend(load(core, RTLSTM_DATA), layer->bits);
    }
  }
}

static void write_c(const rtlstm_mmio *core, const rtlstm_layer *layer, uint32_t row, const int32_t *c) {
  for (uint32_t bank = 0; bank < core->build->gate_units; ++bank) {
    point(core, RTLSTM_REGION_CELLS, bank, row);
    for (uint32_t i = bank; i < layer->units; i += core->build->gate_units) {
      store(core, RTLSTM_DATA, (uint32_t)c[i] & mask(layer->bits));
    }
  }
}

static void clear(const rtlstm_layer *layers, uint32_t count, int32_t *values) {
  for (uint32_t i = 0; i < count; ++i) {
    for (uint32_t j = 0; j < layers[i].units; ++j) *values++ = 0;
  }
}

int rtlstm_mmio_read_state(rtlstm_mmio *core, uint32_t stream, int32_t *h, int32_t *c) {
  const rtlstm_build *build = core->build;
  int code = begin_command(core, stream);
  uint32_t flags;
  if (code) return code;
  flags = load(core, RTLSTM_FLAGS);
  if (flags & RTLSTM_FLAGS_ZERO_MASK) {
    /* The memories still hold what was there before the reset. */
    clear(build->h, build->h_layers, h);
    clear(build->c, build->c_layers, c);
    return RTLSTM_MMIO_OK;
  }
  for (uint32_t i = 0; i < build->h_layers; h += build->h[i++].units) {
    /* The first layer's h has two addresses in turn. */
    uint32_t copy = i == 0 && (flags & RTLSTM_FLAGS_COPIED_MASK) ? build->copy_rows : 0;
    read_h(core, &build->h[i], stream * build->vector_rows + build->h[i].row + copy, h);
  }
  for (uint32_t i = 0; i < build->c_layers; c += build->c[i++].units) {
    read_c(core, &build->c[i], stream * build->cell_rows + build->c[i].row, c);
  }
  return check_accesses(core);
}

static int state_fits(const rtlstm_layer *layers, uint32_t count, const int32_t *values) {
  for (uint32_t i = 0; i < count; values += layers[i++].units) {
    if (!fits(values, layers[i].units, layers[i].bits)) return 0;
  }
  return 1;
}

int rtlstm_mmio_write_state(rtlstm_mmio *core, uint32_t stream, const int32_t *h, const int32_t *c) {
  const rtlstm_build *build = core->build;
  int code;
  if (!state_fits(build->h, build->h_layers, h) || !state_fits(build->c, build->c_layers, c)) {
    return RTLSTM_MMIO_BAD_VALUE;
  }
  if ((code = begin_command(core, stream))) return code;
  for (uint32_t i = 0; i < build->h_layers; h += build->h[i++].units) {
    write_h(core, &build->h[i], stream * build->vector_rows + build->h[i].row, h);
  }
  for (uint32_t i = 0; i < build->c_layers; c += build->c[i++].units) {
    write_c(core, &build->c[i], stream * build->cell_rows + build->c[i].row, c);
  }
  store(core, RTLSTM_COMMAND, RTLSTM_COMMAND_STATE_WRITTEN);
  return check_accesses(core);
}

#ifdef RTLSTM_X_DATA

static int await(rtlstm_mmio *core, uint32_t offset) {
  for (uint32_t poll = 0; poll < core->polls; ++poll) {
    if (load(core, offset)) return RTLSTM_MMIO_OK;
  }
  return fail(core, RTLSTM_MMIO_TIMEOUT);
}

static int check_steps(rtlstm_mmio *core, uint32_t stream, const int32_t *x, size_t values) {
  if (stream >= core->build->streams) return RTLSTM_MMIO_BAD_STREAM;
  if (!fits(x, values, core->build->data_bits)) return RTLSTM_MMIO_BAD_VALUE;
  for (size_t i = 0; core->build->tokens && i < values; ++i)
    if ((uint32_t)x[i] >= core->build->tokens) return RTLSTM_MMIO_BAD_VALUE;
  return has_network(core) ? RTLSTM_MMIO_OK : RTLSTM_MMIO_NOT_LOADED;
}

static void write_step(const rtlstm_mmio *core, const int32_t *x) {
  for (uint32_t i = 0; i < core->build->inputs; ++i) store(core, RTLSTM_X_DATA, (uint32_t)x[i]);
}

static uint32_t read_step(const rtlstm_mmio *core, int32_t *y) {
  uint32_t stream = load(core, RTLSTM_Y_STREAM);
  for (uint32_t i = 0; i < core->build->outputs; ++i) y[i] = extend(load(core, RTLSTM_Y_DATA), 32);
  return stream;
}

int rtlstm_mmio_send(rtlstm_mmio *core, uint32_t stream, const int32_t *x) {
  int code = check_steps(core, stream, x, core->build->inputs);
  if (code || (code = await(core, RTLSTM_X_ROOM))) return code;
  store(core, RTLSTM_X_STREAM, stream);
  write_step(core, x);
  return check_accesses(core);
}

int rtlstm_mmio_ready(rtlstm_mmio *core) { return load(core, RTLSTM_Y_STEPS) != 0; }

int rtlstm_mmio_receive(rtlstm_mmio *core, uint32_t *stream, int32_t *y) {
  int code = await(core, RTLSTM_Y_STEPS);
  if (code) return code;
  *stream = read_step(core, y);
  return check_accesses(core);
}

int rtlstm_mmio_run(rtlstm_mmio *core, uint32_t stream, const int32_t *x, int32_t *y, size_t steps) {
  const rtlstm_build *build = core->build;
  int code = check_steps(core, stream, x, steps * build->inputs);
  size_t sent = 0, taken = 0;
  uint32_t poll = 0;
  if (code) return code;
  store(core, RTLSTM_X_STREAM, stream);
  while (taken < steps) {
    uint32_t room = sent < steps ? load(core, RTLSTM_X_ROOM) : 0, ready = sent > taken ? load(core, RTLSTM_Y_STEPS) : 0;
    if (!room && !ready && ++poll >= core->polls) return fail(core, RTLSTM_MMIO_TIMEOUT);
    if (room || ready) poll = 0;
    for (; room && sent < steps; --room, ++sent) write_step(core, x + sent * build->inputs);
    for (; ready && taken < sent; --ready, ++taken) {
      if (read_step(core, y + taken * build->outputs) != stream) return fail(core, RTLSTM_MMIO_OTHER_STREAM);
    }
  }
  return check_accesses(core);
}

int rtlstm_mmio_step(rtlstm_mmio *core, uint32_t stream, const int32_t *x, int32_t *y) {
  return rtlstm_mmio_run(core, stream, x, y, 1);
}

#endif

const char *rtlstm_mmio_message(int code) {
  switch (code) {
    case RTLSTM_MMIO_OK: return "no error";
    case RTLSTM_MMIO_NOT_A_CORE: return "no rtlstm core answers at this address; check address, clock and bitstream";
    case RTLSTM_MMIO_OTHER_MAP: return "the core has another register map; generate it again";
    case RTLSTM_MMIO_OTHER_BUILD: return "the core is of another build than the header";
    case RTLSTM_MMIO_BAD_IMAGE: return "the weight image is damaged, or none";
    case RTLSTM_MMIO_OTHER_IMAGE: return "the weight image is of another build than the header";
    case RTLSTM_MMIO_NOT_LOADED: return "the core has no whole network; load its weights";
    case RTLSTM_MMIO_TIMEOUT: return "the core made no progress, and was reset";
    case RTLSTM_MMIO_REFUSED: return "the core refused an access, and was reset";
    case RTLSTM_MMIO_BAD_STREAM: return "the core has no such stream";
    case RTLSTM_MMIO_BAD_VALUE: return "a value needs more bits than its format has, or is no token";
    case RTLSTM_MMIO_OTHER_STREAM: return "the core gave another stream's output, and was reset";
    default: return "no code of this driver";
  }
}
