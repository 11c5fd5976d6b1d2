#include "rtlstm.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

enum { HELLO = 0x01, RESUME = 0x02, WRITE = 0x10, READ = 0x11, STEPS = 0x13 };
enum { REPORT = 0x81, LOST = 0x82, DONE = 0x90, ERROR = 0x91 };
enum { HEADER = 7, LARGEST = 512, WORDS = 120, RETRY_MS = 500, ATTEMPTS = 20 };

#define UDP_PORT "20051" /* of a board with Ethernet */

static int fail(rtlstm *device, const char *what) {
  snprintf(device->error, sizeof device->error, "%s", what);
  return -1;
}

/* A board's server serves one program, and hangs up on others. */
static int fail_broken(rtlstm *device) {
  return fail(device, "the connection is broken; another program may be using it");
}

static const uint32_t CASTAGNOLI = 0x82F63B78, ETHERNET = 0xEDB88320;

static uint32_t crc(const uint8_t *data, size_t count, uint32_t polynomial) {
  uint32_t sum = ~0u;
  while (count--) {
    sum ^= *data++;
    for (int bit = 0; bit < 8; ++bit) sum = sum >> 1 ^ (sum & 1 ? polynomial : 0);
  }
  return ~sum;
}

static uint32_t little(const uint8_t *data, int bytes) {
  uint32_t value = 0;
  while (bytes--) value = value << 8 | data[bytes];
  return value;
}

static void put(uint8_t *data, uint32_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) data[i] = (uint8_t)(value >> 8 * i);
}

/* Exchange bytes over SPI, and keep those that have come; of more than there is room for, what is lost is asked for
 * again. */
static int exchange(rtlstm *device, uint8_t *bytes, size_t count) {
  size_t room;
  if (device->transfer(device->context, bytes, count)) return fail_broken(device);
  device->given -= device->taken;
  memmove(device->chunk, device->chunk + device->taken, device->given);
  device->taken = 0;
  room = sizeof device->chunk - device->given;
  if (count > room) count = room;
  memcpy(device->chunk + device->given, bytes, count);
  device->given += count;
  return 0;
}

static int send_all(rtlstm *device, const uint8_t *data, size_t count) {
  if (device->transfer) {
    uint8_t bytes[LARGEST + 16];
    memcpy(bytes, data, count);
    return exchange(device, bytes, count);
  }
  while (count) {
    /* Without the signal that would end the program silently; only a socket can be told so. */
    ssize_t sent = send(device->fd, data, count, MSG_NOSIGNAL);
    if (sent < 0 && errno == ENOTSOCK) sent = write(device->fd, data, count);
    if (sent < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (sent <= 0) return fail_broken(device);
    data += sent;
    count -= (size_t)sent;
  }
  return 0;
}

/* Header, payload and CRC without zeros, and a zero behind them. */
static int send_frame(rtlstm *device, int type, uint16_t session, uint16_t seq, const uint8_t *payload,
                      size_t count) {
  uint8_t body[LARGEST + 4], line[LARGEST + 16];
  size_t length = HEADER + count, code = 1, end = 2;
  body[0] = (uint8_t)type;
  put(body + 1, session, 2);
  put(body + 3, seq, 2);
  put(body + 5, device->seq, 2); /* the first response that we have not got */
  if (count) memcpy(body + HEADER, payload, count);
  put(body + length, crc(body, length, CASTAGNOLI), 4);
  length += 4;
  line[0] = 0; /* ends whatever came before */
  for (size_t i = 0; i < length; ++i) {
    if (body[i]) line[end++] = body[i];
    if (!body[i] || end - code == 255) {
      line[code] = (uint8_t)(end - code);
      code = end++;
    }
  }
  line[code] = (uint8_t)(end - code);
  line[end++] = 0;
  return send_all(device, line, end);
}

/* Undo COBS in place; return the bytes, or 0 if that is impossible. */
static size_t decode(uint8_t *data, size_t count) {
  size_t from = 0, to = 0;
  while (from < count) {
    size_t code = data[from++];
    if (code == 0 || from + code - 1 > count) return 0;
    memmove(data + to, data + from, code - 1);
    to += code - 1;
    from += code - 1;
    if (code < 255 && from < count) data[to++] = 0;
  }
  return to;
}

static long long milliseconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000LL + now.tv_nsec / 1000000;
}

/* Wait for a whole frame; return its body's length, 0 after `deadline`, -1 on a broken connection. */
static int receive(rtlstm *device, uint8_t *body, long long deadline) {
  for (;;) {
    uint8_t byte;
    long long left = deadline - milliseconds();
    struct pollfd wait = {device->fd, POLLIN, 0};
    if (device->taken == device->given && device->transfer) {
      uint8_t zeros[16] = {0};
      if (left <= 0) return 0;
      if (exchange(device, zeros, sizeof zeros)) return -1;
    } else if (device->taken == device->given) {
      int ready = poll(&wait, 1, left > 0 ? (int)left : 0);
      ssize_t count;
      if (ready < 0 && errno == EINTR) continue;
      if (ready == 0) return 0;
      count = ready < 0 ? -1 : read(device->fd, device->chunk, sizeof device->chunk);
      if (count <= 0) return fail_broken(device);
      device->taken = 0;
      device->given = (size_t)count;
    }
    byte = device->chunk[device->taken++];
    if (byte) {
      if (device->held < sizeof device->frame) device->frame[device->held++] = byte;
      continue;
    }
    size_t length = device->held < sizeof device->frame ? decode(device->frame, device->held) : 0;
    device->held = 0;
    if (length < HEADER + 4 || length > LARGEST + 4) continue;
    if (crc(device->frame, length - 4, CASTAGNOLI) != little(device->frame + length - 4, 4)) continue;
    memcpy(body, device->frame, length - 4);
    return (int)length - 4;
  }
}

/* Ask something that is not numbered until it is answered; return the answer's length. */
static int ask(rtlstm *device, int type, uint16_t session, const uint8_t *payload, size_t count, uint8_t *body) {
  for (int attempt = 0; attempt < ATTEMPTS; ++attempt) {
    long long deadline = milliseconds() + RETRY_MS;
    int length;
    if (++device->number == 0) device->number = 1;
    if (send_frame(device, type, session, device->number, payload, count)) return -1;
    while ((length = receive(device, body, deadline)) > 0) {
      int answers = (body[0] == REPORT || body[0] == LOST) && little(body + 3, 2) == device->number;
      if (answers && length >= HEADER + 28) return length;
    }
    if (length < 0) return -1;
  }
  return fail(device, "the device does not answer");
}

/* Have one request carried out, exactly once; return the length of its result. */
static int request(rtlstm *device, int type, const uint8_t *payload, size_t count, uint8_t *result) {
  uint8_t body[LARGEST + 4];
  for (int attempt = 0; attempt < ATTEMPTS; ++attempt) {
    long long deadline = milliseconds() + RETRY_MS;
    int length;
    if (attempt) {
      /* Either is dropped by a device that has no need of it: it knows the request by its number. */
      ++device->resent;
      if (send_frame(device, RESUME, device->session, ++device->number, NULL, 0)) return -1;
    }
    if (send_frame(device, type, device->session, device->seq, payload, count)) return -1;
    while ((length = receive(device, body, deadline)) > 0) {
      if (body[0] == LOST) return fail(device, "the device was reset, or another program has it");
      if (little(body + 1, 2) != device->session || little(body + 3, 2) != device->seq) continue;
      if (body[0] != DONE && body[0] != ERROR) continue;
      ++device->seq;
      if (body[0] == ERROR) return fail(device, "the device refused the request");
      memcpy(result, body + HEADER, (size_t)length - HEADER);
      return length - HEADER;
    }
    if (length < 0) return -1;
  }
  return fail(device, "the device does not answer");
}

static int connect_to(rtlstm *device, const char *line, const char *colon, int type) {
  char host[128];
  struct addrinfo hints = {.ai_socktype = type}, *found = NULL, *each;
  snprintf(host, sizeof host, "%.*s", (int)(colon ? colon - line : (long)strlen(line)), line);
  if (getaddrinfo(host, colon ? colon + 1 : UDP_PORT, &hints, &found)) return fail(device, "there is no such host");
  for (each = found; each; each = each->ai_next) {
    device->fd = socket(each->ai_family, each->ai_socktype, each->ai_protocol);
    if (device->fd >= 0 && connect(device->fd, each->ai_addr, each->ai_addrlen) == 0) break;
    if (device->fd >= 0) close(device->fd);
    device->fd = -1;
  }
  freeaddrinfo(found);
  return device->fd < 0 ? fail(device, "nothing listens at this port") : 0;
}

static int open_serial(rtlstm *device, const char *line) {
  static const struct { unsigned long baud; speed_t speed; } rates[] = {
      {115200, B115200}, {1000000, B1000000}, {2000000, B2000000}, {3000000, B3000000}};
  char path[128];
  const char *at = strchr(line, '@');
  unsigned long baud = at ? strtoul(at + 1, NULL, 10) : 1000000;
  struct termios port;
  snprintf(path, sizeof path, "%.*s", (int)(at ? at - line : (long)strlen(line)), line);
  device->fd = open(path, O_RDWR | O_NOCTTY);
  if (device->fd < 0 || tcgetattr(device->fd, &port)) return fail(device, "the serial port cannot be opened");
  port.c_iflag = port.c_oflag = port.c_lflag = 0;
  port.c_cflag = CS8 | CREAD | CLOCAL;
  port.c_cc[VMIN] = 1;
  port.c_cc[VTIME] = 0;
  for (size_t i = 0; i < sizeof rates / sizeof *rates; ++i) {
    if (rates[i].baud != baud) continue;
    cfsetispeed(&port, rates[i].speed);
    cfsetospeed(&port, rates[i].speed);
    return tcsetattr(device->fd, TCSANOW, &port) ? fail(device, "the serial port refuses its settings") : 0;
  }
  return fail(device, "the rate must be 115200, 1000000, 2000000 or 3000000 baud");
}

static int open_line(rtlstm *device, const char *line) {
  const char *colon = strrchr(line, ':');
  if (!strncmp(line, "udp:", 4)) return connect_to(device, line + 4, strchr(line + 4, ':'), SOCK_DGRAM);
  return colon && line[0] != '/' ? connect_to(device, line, colon, SOCK_STREAM) : open_serial(device, line);
}

static int begin(rtlstm *device) {
  uint8_t body[LARGEST + 4], hello[3] = {1};
  /* Learn which session the device is in, then put a new one in its place. */
  device->session = (uint16_t)(milliseconds() * 40503u ^ (unsigned)getpid() << 4) | 1;
  device->number = device->session ^ 0x5A5A;
  if (ask(device, RESUME, 0, NULL, 0, body) < 0) return -1;
  if (body[HEADER] != 1) return fail(device, "the device speaks another version of the protocol");
  put(hello + 1, little(body + HEADER + 2, 2), 2);
  if (ask(device, HELLO, device->session, hello, sizeof hello, body) < 0) return -1;
  if (body[0] != REPORT) return fail(device, "another program has the device");
  device->id = little(body + HEADER + 12, 4);
  device->build = little(body + HEADER + 16, 4);
  return 0;
}

int rtlstm_open(rtlstm *device, const char *line) {
  memset(device, 0, sizeof *device);
  device->fd = -1;
  return open_line(device, line) ? -1 : begin(device);
}

int rtlstm_open_spi(rtlstm *device, rtlstm_transfer *transfer, void *context) {
  memset(device, 0, sizeof *device);
  device->fd = -1;
  device->transfer = transfer;
  device->context = context;
  return begin(device);
}

void rtlstm_close(rtlstm *device) {
  if (device->fd >= 0) close(device->fd);
  device->fd = -1;
}

int rtlstm_write(rtlstm *device, unsigned number, const uint32_t *words, size_t count) {
  uint8_t payload[1 + 4 * WORDS], result[LARGEST];
  payload[0] = (uint8_t)number;
  while (count) {
    size_t some = count < WORDS ? count : WORDS;
    for (size_t i = 0; i < some; ++i) put(payload + 1 + 4 * i, words[i], 4);
    if (request(device, WRITE, payload, 1 + 4 * some, result) < 0) return -1;
    words += some;
    count -= some;
  }
  return 0;
}

int rtlstm_read(rtlstm *device, unsigned number, uint32_t *words, unsigned count) {
  uint8_t payload[2] = {(uint8_t)number, (uint8_t)count}, result[LARGEST];
  if (count == 0 || count > WORDS) return fail(device, "1 to 120 words can be read at once");
  if (request(device, READ, payload, sizeof payload, result) != (int)(4 * count)) {
    return device->error[0] ? -1 : fail(device, "the answer has a wrong length");
  }
  for (unsigned i = 0; i < count; ++i) words[i] = little(result + 4 * i, 4);
  return 0;
}

static int command(rtlstm *device, uint32_t stream, uint32_t what) {
  return rtlstm_write(device, RTLSTM_REG_STREAM, &stream, 1) || rtlstm_write(device, RTLSTM_REG_COMMAND, &what, 1) ? -1 : 0;
}

int rtlstm_reset(rtlstm *device, unsigned stream) { return command(device, stream, 1); }

int rtlstm_hand_over(rtlstm *device, unsigned stream) { return command(device, stream, 3); }

/* Of the image's segments: 16 bytes each behind the head, docs/ports.md has their fields. */
enum { SEGMENTS = 56, SEGMENT = 16, PROGRAM = 9 };

static int has_program(const uint8_t *image) {
  uint32_t segments = little(image + SEGMENTS - 4, 4);
  for (uint32_t i = 0; i < segments; ++i) {
    if (little(image + SEGMENTS + SEGMENT * (size_t)i, 4) == PROGRAM) return 1;
  }
  return 0;
}

/* Whether the segments' words are all there, so that nobody reads behind them. */
static int whole(const uint8_t *image, size_t size) {
  uint64_t segments = little(image + SEGMENTS - 4, 4), left = size - SEGMENTS;
  if (segments > left / SEGMENT) return 0;
  left -= SEGMENT * segments;
  for (uint64_t i = 0; i < segments; ++i) {
    const uint8_t *head = image + SEGMENTS + SEGMENT * i;
    uint64_t rows = (uint64_t)little(head + 4, 4) * little(head + 8, 4), row_words = little(head + 12, 4);
    if (row_words == 0 || rows > left / 4 / row_words) return 0;
    left -= 4 * rows * row_words;
  }
  return left == 0;
}

static int load_rows(rtlstm *device, uint32_t select, uint32_t row, const uint8_t *data, size_t count) {
  uint32_t words[WORDS];
  if (rtlstm_write(device, RTLSTM_REG_SELECT, &select, 1) || rtlstm_write(device, RTLSTM_REG_ROW, &row, 1)) return -1;
  while (count) {
    size_t some = count < WORDS ? count : WORDS;
    for (size_t i = 0; i < some; ++i) words[i] = little(data + 4 * i, 4);
    if (rtlstm_write(device, RTLSTM_REG_DATA, words, some)) return -1;
    data += 4 * some;
    count -= some;
  }
  return 0;
}

/* A program goes first but for its last row: its first word stops the device, and its last one starts it, so that
 * no step meets parts of two networks. */
static int load_segments(rtlstm *device, const uint8_t *image) {
  enum { STOP, REST, START };
  uint32_t segments = little(image + SEGMENTS - 4, 4);
  for (int turn = STOP; turn <= START; ++turn) {
    const uint8_t *place = image + SEGMENTS + SEGMENT * (size_t)segments;
    for (uint32_t i = 0; i < segments; ++i) {
      const uint8_t *head = image + SEGMENTS + SEGMENT * (size_t)i;
      uint32_t region = little(head, 4), banks = little(head + 4, 4), rows = little(head + 8, 4);
      size_t row_words = little(head + 12, 4);
      uint32_t first = turn == START ? rows - 1 : 0, last = turn == STOP ? rows - 1 : rows;
      for (uint32_t bank = 0; bank < banks; ++bank, place += 4 * rows * row_words) {
        if ((region == PROGRAM) != (turn != REST) || rows == 0) continue;
        if (load_rows(device, region << 28 | bank, first, place + 4 * first * row_words, (last - first) * row_words)) {
          return -1;
        }
      }
    }
  }
  return rtlstm_reset(device, 0);
}

/* Whether the image's network may be loaded into this device; `build` is the caller's number, 0 if not known. */
static int check_build(rtlstm *device, const uint8_t *image, uint32_t build) {
  uint32_t capacity;
  uint32_t network = (uint32_t)image[20] << 24 | (uint32_t)image[21] << 16 | (uint32_t)image[22] << 8 | image[23];
  if (has_program(image) && !build) {
    return fail(device, "weights with a program do not say which device they are for: give the build's number, "
                        "RTLSTM_BUILD_NUMBER of its rtlstm_registers.h");
  }
  if (!has_program(image) && network != device->build) {
    return fail(device, "the weights are of another build than the device");
  }
  if (build && build != device->build) {
    snprintf(device->error, sizeof device->error, "the device must hold build %08" PRIx32 ", but it holds %08" PRIx32,
             build, device->build);
    return -1;
  }
  if (rtlstm_read(device, RTLSTM_REG_CAPACITY, &capacity, 1)) return -1;
  if (capacity >> 12 & 15) {
    return fail(device, "the device holds several networks, each in rows of its own: load them with the Python driver");
  }
  return 0;
}

int rtlstm_load(rtlstm *device, const char *path, uint32_t build) {
  FILE *file = fopen(path, "rb");
  uint8_t *image = NULL;
  long size = -1;
  int result;
  if (file && !fseek(file, 0, SEEK_END)) size = ftell(file);
  if (size >= 60 && (image = malloc((size_t)size)) && !fseek(file, 0, SEEK_SET)) {
    if (fread(image, 1, (size_t)size, file) != (size_t)size) size = -1;
  }
  if (file) fclose(file);
  if (!image || size < 60 || memcmp(image, "RTLSTMWI", 8) || little(image + 12, 4) != (uint32_t)size) {
    result = fail(device, "the weight image cannot be read");
  } else if (crc(image, (size_t)size - 4, ETHERNET) != little(image + size - 4, 4) ||
             !whole(image, (size_t)size - 4)) {
    result = fail(device, "the weight image is damaged");
  } else {
    result = check_build(device, image, build) ? -1 : load_segments(device, image);
  }
  free(image);
  return result;
}

/* Whether a step's values fit; if so, how many bytes a value has each way. */
static int fits(unsigned inputs, unsigned bits, unsigned *bytes, unsigned outputs, unsigned output_bits,
                unsigned *output_bytes) {
  *bytes = (bits + 7) / 8;
  *output_bytes = (output_bits + 7) / 8;
  return 2 + inputs * *bytes <= LARGEST - HEADER && outputs * *output_bytes <= LARGEST - HEADER;
}

static size_t put_step(uint8_t *data, unsigned head, const int32_t *x, unsigned inputs, unsigned bytes) {
  put(data, head, 2);
  for (unsigned i = 0; i < inputs; ++i) put(data + 2 + i * bytes, (uint32_t)x[i], (int)bytes);
  return 2 + inputs * bytes;
}

static void take_outputs(const uint8_t *data, int32_t *y, unsigned outputs, unsigned bytes) {
  for (unsigned i = 0; i < outputs; ++i) {
    uint32_t value = little(data + i * bytes, (int)bytes), sign = 1u << (8 * bytes - 1);
    y[i] = (int32_t)((value ^ sign) - sign);
  }
}

int rtlstm_step(rtlstm *device, unsigned stream, const int32_t *x, unsigned inputs, unsigned bits, int32_t *y,
                unsigned outputs, unsigned output_bits) {
  uint8_t payload[LARGEST], result[LARGEST];
  unsigned bytes, output_bytes;
  if (!fits(inputs, bits, &bytes, outputs, output_bits, &output_bytes)) {
    return fail(device, "this client's steps must fit into one frame");
  }
  if (request(device, STEPS, payload, put_step(payload, stream, x, inputs, bytes), result) !=
      (int)(outputs * output_bytes)) {
    return device->error[0] ? -1 : fail(device, "the answer has a wrong length");
  }
  take_outputs(result, y, outputs, output_bytes);
  return 0;
}

/* Of raw transfers: first byte, bit of the step's first two bytes, and bytes of the CRC-16. */
enum { RAW_STEP = 0x01, RAW_RESET = 1 << 14, RAW_CRC = 2, MOST_SPARE = 256 };

static uint16_t crc16(const uint8_t *data, size_t count) {
  uint32_t sum = 0xFFFF;
  while (count--) {
    sum ^= (uint32_t)*data++ << 8;
    for (int bit = 0; bit < 8; ++bit) sum = sum << 1 ^ (sum & 0x8000 ? 0x1021u : 0);
  }
  return (uint16_t)sum;
}

int rtlstm_open_raw_spi(rtlstm *device, rtlstm_transfer *transfer, void *context, size_t spare) {
  memset(device, 0, sizeof *device);
  device->fd = -1;
  if (spare > MOST_SPARE) return fail(device, "there must be at most 256 spare zeros behind a raw step");
  device->transfer = transfer;
  device->context = context;
  device->spare = spare;
  return 0;
}

/* Return the whole result of `size` bytes, or of an error, in what came behind zeros; NULL if there is none. */
static const uint8_t *find_result(const uint8_t *data, size_t count, size_t size) {
  while (count && !*data) ++data, --count;
  if (count && *data == ERROR) size = 2 + RAW_CRC;
  return count >= size && (*data == DONE || *data == ERROR) && !crc16(data, size) ? data : NULL;
}

/* Send a raw step of `count` bytes; return its result, NULL on an error. */
static const uint8_t *exchange_raw(rtlstm *device, uint8_t *bytes, size_t count, size_t size) {
  const uint8_t *found = NULL;
  long long deadline = milliseconds() + RETRY_MS;
  if (device->transfer) {
    size_t more = device->spare ? device->spare + size : 0;
    memset(bytes + count, 0, more);
    if (device->transfer(device->context, bytes, count + more)) return fail_broken(device), NULL;
    found = find_result(bytes + count, more, size);
    while (!found && milliseconds() < deadline) {
      /* The first byte of a transfer says nothing. */
      memset(bytes, 0, 2 + size);
      if (device->transfer(device->context, bytes, 2 + size)) return fail_broken(device), NULL;
      found = find_result(bytes + 1, 1 + size, size);
    }
  } else {
    long long left;
    /* What came too late for an earlier step is no answer to this one. */
    while (recv(device->fd, device->chunk, sizeof device->chunk, MSG_DONTWAIT) > 0) continue;
    if (send(device->fd, bytes, count, MSG_NOSIGNAL) != (ssize_t)count) return fail_broken(device), NULL;
    while (!found && (left = deadline - milliseconds()) > 0) {
      struct pollfd wait = {device->fd, POLLIN, 0};
      ssize_t came = poll(&wait, 1, (int)left) > 0 ? recv(device->fd, device->chunk, sizeof device->chunk, 0) : 0;
      if (came < 0) return fail_broken(device), NULL;
      found = find_result(device->chunk, (size_t)came, size);
    }
  }
  if (!found) fail(device, "no whole result of the raw step came; it may have been run or not");
  return found;
}

int rtlstm_raw_step(rtlstm *device, unsigned stream, int reset, const int32_t *x, unsigned inputs, unsigned bits,
                    int32_t *y, unsigned outputs, unsigned output_bits) {
  uint8_t bytes[2 * LARGEST + MOST_SPARE] = {RAW_STEP};
  unsigned in_bytes, output_bytes;
  const uint8_t *found;
  size_t count = 1;
  uint16_t sum;
  if (!fits(inputs, bits, &in_bytes, outputs, output_bits, &output_bytes)) {
    return fail(device, "this client's steps must fit into one frame");
  }
  count += put_step(bytes + 1, stream | (reset ? RAW_RESET : 0), x, inputs, in_bytes);
  sum = crc16(bytes, count);
  bytes[count++] = (uint8_t)(sum >> 8);
  bytes[count++] = (uint8_t)sum;
  found = exchange_raw(device, bytes, count, 1 + outputs * output_bytes + RAW_CRC);
  if (!found) return -1;
  if (*found == ERROR) return fail(device, "the device has no such stream");
  take_outputs(found + 1, y, outputs, output_bytes);
  return 0;
}
