/* A core behind a serial port, a TCP port or Ethernet, from C: no library but POSIX. docs/link.md has the protocol. */
#ifndef RTLSTM_H
#define RTLSTM_H

#include <stddef.h>
#include <stdint.h>

/* Registers by number, as the link wants them. A build's rtlstm_registers.h has byte offsets: divide those by 4. */
enum {
  RTLSTM_REG_STREAM = 3,
  RTLSTM_REG_COMMAND = 4,
  RTLSTM_REG_SELECT = 6,
  RTLSTM_REG_ROW = 7,
  RTLSTM_REG_DATA = 8,
  RTLSTM_REG_CAPACITY = 15
};

/* Exchange bytes over SPI, mode 0: send those of `bytes` and put what comes in their place. Return 0, or -1. */
typedef int rtlstm_transfer(void *context, uint8_t *bytes, size_t count);

typedef struct {
  int fd;
  rtlstm_transfer *transfer;
  void *context;
  uint16_t session, seq, number;
  uint32_t id, build;   /* what the device says of itself */
  unsigned resent;      /* requests that had to be sent again */
  size_t held;          /* bytes of a frame that has not ended */
  size_t taken, given;  /* bytes of `chunk` that were taken, and that there are */
  uint8_t chunk[1536];  /* what was read at once: a datagram has several bytes */
  uint8_t frame[1024];
  size_t spare;         /* see rtlstm_open_raw_spi */
  char error[160];      /* why the last call failed */
} rtlstm;

/* Open "HOST:PORT", "udp:HOST" or "udp:HOST:PORT", or a serial device, "/dev/ttyUSB0" or "/dev/ttyUSB0@115200" (else 1000000 baud), and begin a
 * session. Every call returns 0, or -1 with a sentence in `error`; after that, close. */
int rtlstm_open(rtlstm *device, const char *line);
void rtlstm_close(rtlstm *device);

/* The same over SPI, by a function of yours, which gets `context`. */
int rtlstm_open_spi(rtlstm *device, rtlstm_transfer *transfer, void *context);

/* All words go to, or come from, the register of this number. */
int rtlstm_write(rtlstm *device, unsigned number, const uint32_t *words, size_t count);
int rtlstm_read(rtlstm *device, unsigned number, uint32_t *words, unsigned count);

/* Load the weights.bin of a build of one network (several are loaded by the Python driver), which must be of the build that the device holds, and reset stream 0. `build` is
 * RTLSTM_BUILD_NUMBER of the build's rtlstm_registers.h. With a fixed program it may be 0, not known: the file has
 * the same number. With a loadable one the file's number is the network's, and nothing there tells the device. */
int rtlstm_load(rtlstm *device, const char *path, uint32_t build);

/* Stream `stream` of network `network`, on a device that holds several: wherever a stream is asked for. */
#define RTLSTM_STREAM_OF(network, stream) ((unsigned)(network) << 10 | (unsigned)(stream))

/* Have a stream begin anew; or let it go on, from the state that it has, with the network of its number: a decoder
 * after an encoder. The states of both must have the same layers and formats, and stand in the same rows: `hidden`,
 * `cells` and `copy_words` of the programs in their manifests. */
int rtlstm_reset(rtlstm *device, unsigned stream);
int rtlstm_hand_over(rtlstm *device, unsigned stream);

/* Run one step of a stream: `inputs` integers of `bits` bits in, `outputs` integers of `output_bits` bits out, which
 * the build's header has as RTLSTM_DATA_BITS and RTLSTM_OUTPUT_BITS. */
int rtlstm_step(rtlstm *device, unsigned stream, const int32_t *x, unsigned inputs, unsigned bits, int32_t *y,
                unsigned outputs, unsigned output_bits);

/* For raw steps over SPI alone: a function that selects the raw mode, once in each call. A step is followed by
 * `spare` zeros, at most 256, during which it is run, and by those for its result; with 0, further calls ask for it. */
int rtlstm_open_raw_spi(rtlstm *device, rtlstm_transfer *transfer, void *context, size_t spare);

/* Run one step as rtlstm_step does, but send it once and without a session, by a device of rtlstm_open_raw_spi or of
 * rtlstm_open with "udp:". It is for a board with the raw mode whose weights are loaded. After an error the step may
 * have been run or not. `reset`, if not 0, resets the stream's state before. */
int rtlstm_raw_step(rtlstm *device, unsigned stream, int reset, const int32_t *x, unsigned inputs, unsigned bits,
                    int32_t *y, unsigned outputs, unsigned output_bits);

#endif
