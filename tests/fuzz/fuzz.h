/* What the harnesses share.
 *
 * A harness is tests/fuzz/fuzz_NAME.c with one function, LLVMFuzzerTestOneInput: it gives any bytes
 * to a parser, and whatever it returns must be usable, or an error with a sentence. Two programs
 * call harnesses: driver.c, which replays tests/fuzz/corpus/NAME and seeded mutations of it in
 * `make test`, and libFuzzer in `make fuzz`. */
#ifndef TRI_TESTS_FUZZ_H
#define TRI_TESTS_FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t num_bytes);

/* A property that must hold whatever the input is: says what and aborts. */
void fuzz_require(bool holds, const char *what);
/* The result of a parser: TR_OK, or a failure that has a message. Returns whether it is TR_OK. */
bool fuzz_fine(tr_status status, const tr_error *err);

/* Copies on the heap, of exactly the size, so that a sanitizer sees who reads past the end: the
 * bytes, or with a NUL behind them. */
uint8_t *fuzz_bytes(const uint8_t *data, size_t num_bytes);
char *fuzz_text(const uint8_t *data, size_t num_bytes);
/* Cuts the first line off an input, as text on the heap. */
char *fuzz_line(const uint8_t **data, size_t *num_bytes);

/* Connections. One that is closed in good order keeps its port for a minute, and there are some
 * 28,000: ends of ours are torn off, and a harness that connects holds long runs to what is given
 * back in time, once for each input. */
void fuzz_hang_up(int fd);
void fuzz_spare_ports(void);

/* The bytes as a file without a name; the path is good until the next call. */
const char *fuzz_file(const uint8_t *data, size_t num_bytes);
/* A directory of this process, in memory where that can be had; taken away at the end. */
const char *fuzz_dir(void);
/* "DIR/name", on the heap. */
char *fuzz_path(const char *name);
/* The directory with exactly these files: an input is any number of
 *     #file NAME
 *     content
 * where the line end before the next "#file" belongs to neither. */
void fuzz_dir_fill(const uint8_t *data, size_t num_bytes);
/* A file of tests/fixtures, or of the folder in TRIREME_FUZZ_FIXTURES; on the heap. */
char *fuzz_fixture(const char *name);

#endif
