/* JSON as Python's json module writes it, which Hugging Face's files are: besides JSON it has NaN,
 * Infinity and whole numbers of any length, and texts that are names may hold U+0000. */
#ifndef TRI_BASE_PYTHON_JSON_H
#define TRI_BASE_PYTHON_JSON_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

/* Stands for U+0000 in names of members, where jansson allows none, of a text that has such names:
 * U+FDDE, which is no character. A text that has both is refused. */
#define TRI_JSON_NUL "\xEF\xB7\x9E"

/* As json_loadb, with JSON_REJECT_DUPLICATES and JSON_ALLOW_NUL. A number that is not finite comes
 * out as the string "NaN", "Infinity" or "-Infinity", so that nobody takes it for a number; a whole
 * number beyond 64 bits as a real one. nul_names (may be NULL) says whether TRI_JSON_NUL stands for
 * anything. */
json_t *tri_python_json_load(const char *text, size_t num_bytes, bool *nul_names,
                             json_error_t *error);

#endif
