/* Steps from standard input, one a line, through stream 0; their outputs to standard output. All integers, in the
 * build's own formats. */
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rtlstm.h"

enum { MOST = 500, SHOWN = 40 }; /* values of a step; letters of bad input that are shown */

/* Take the next word of `*text` as a decimal integer; return 1, 0 at the end, or -1 if it is none, with the word and
 * its length. Behind the range of `long` it is that range's end. */
static int next_integer(char **text, char **word, int *length, long *value) {
  char *end;
  while (isspace((unsigned char)**text)) ++*text;
  *word = *text;
  if (!**text) return 0;
  while (**text && !isspace((unsigned char)**text)) ++*text;
  *length = (int)(*text - *word < SHOWN ? *text - *word : SHOWN);
  *value = strtol(*word, &end, 10);
  return end == *text ? 1 : -1;
}

static int take_argument(char *text, const char *name, long most, unsigned *into) {
  char *rest = text, *word;
  int length = 0;
  long value;
  if (next_integer(&rest, &word, &length, &value) == 1 && !*rest && value >= 1 && value <= most) {
    *into = (unsigned)value;
    return 0;
  }
  fprintf(stderr, "error: %s must be 1 to %ld, but is '%s'\n", name, most, text);
  return -1;
}

/* One number of bits for inputs and outputs, or two: "8" or "8:16". */
static int take_bits(char *text, unsigned *bits, unsigned *output_bits) {
  char *second = strchr(text, ':');
  if (second) *second++ = 0;
  return take_argument(text, "BITS", 18, bits) || take_argument(second ? second : text, "BITS", 18, output_bits);
}

/* As the generated header or `rtlstm inspect` writes it: hexadecimal, with or without 0x and u. */
static int take_build(const char *text, uint32_t *build) {
  char *end;
  unsigned long long value;
  errno = 0;
  value = strtoull(text, &end, 16);
  if (end != text && (*end == 'u' || *end == 'U')) ++end;
  if (isxdigit((unsigned char)*text) && !*end && !errno && value >= 1 && value <= 0xFFFFFFFF) {
    *build = (uint32_t)value;
    return 0;
  }
  fprintf(stderr, "error: BUILD must be a number of 1 to 8 hexadecimal digits and not 0, but is '%s'\n", text);
  return -1;
}

/* Read one step from a line of `size` bytes. All that is wrong is said, never guessed or wrapped. */
static int take_step(char *line, size_t size, unsigned long number, int32_t *x, unsigned inputs, unsigned bits) {
  long value, highest = (1L << (bits - 1)) - 1, lowest = -highest - 1;
  char *rest = line, *word;
  unsigned count = 0;
  int length, found;
  if (strlen(line) != size) {
    fprintf(stderr, "error: line %lu must be text, but has a zero byte\n", number);
    return -1;
  }
  for (; (found = next_integer(&rest, &word, &length, &value)) == 1; ++count) {
    if (value < lowest || value > highest) {
      fprintf(stderr, "error: values of %u bits must be %ld to %ld, but line %lu has %.*s\n", bits, lowest, highest,
              number, length, word);
      return -1;
    }
    if (count < inputs) x[count] = (int32_t)value;
  }
  if (found < 0) {
    fprintf(stderr, "error: line %lu must have integers, but has '%.*s'\n", number, length, word);
    return -1;
  }
  if (count != inputs) {
    fprintf(stderr, "error: line %lu must have as many values as a step has inputs, %u, but has %u\n", number, inputs,
            count);
    return -1;
  }
  return 0;
}

int main(int count, char **arguments) {
  int32_t x[MOST], y[MOST];
  rtlstm device;
  unsigned inputs, outputs, bits, output_bits;
  uint32_t build = 0;
  char *line = NULL;
  size_t room = 0;
  ssize_t size;
  int result = 1;
  if (count != 6 && count != 7) {
    fprintf(stderr, "usage: %s LINE WEIGHTS INPUTS OUTPUTS BITS[:OUTPUT_BITS] [BUILD] < steps > outputs\n", arguments[0]);
    return 2;
  }
  if (take_argument(arguments[3], "INPUTS", MOST, &inputs) || take_argument(arguments[4], "OUTPUTS", MOST, &outputs) ||
      take_bits(arguments[5], &bits, &output_bits) || (count == 7 && take_build(arguments[6], &build))) {
    return 2;
  }
  if (rtlstm_open(&device, arguments[1]) || rtlstm_load(&device, arguments[2], build)) goto failed;
  fprintf(stderr, "build %08" PRIx32 ", weights loaded\n", device.build);
  for (unsigned long number = 1; (size = getline(&line, &room, stdin)) >= 0; ++number) {
    if (take_step(line, (size_t)size, number, x, inputs, bits)) {
      result = 2;
      goto done;
    }
    if (rtlstm_step(&device, 0, x, inputs, bits, y, outputs, output_bits)) goto failed;
    for (unsigned i = 0; i < outputs; ++i) printf("%" PRId32 "%c", y[i], i + 1 < outputs ? ' ' : '\n');
  }
  fprintf(stderr, "%u requests sent again\n", device.resent);
  result = 0;
  goto done;
failed:
  fprintf(stderr, "error: %s\n", device.error);
done:
  free(line);
  rtlstm_close(&device);
  return result;
}
