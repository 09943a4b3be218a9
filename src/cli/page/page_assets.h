/* The files of the page, which are in the program: `trireme watch` serves them, and `trireme
 * report` makes one file of them. */
#ifndef TRI_CLI_PAGE_PAGE_ASSETS_H
#define TRI_CLI_PAGE_PAGE_ASSETS_H

#include <stdbool.h>
#include <stddef.h>

/* name: "page.css", without a slash. False where there is no such file; type is what a server calls
 * it. Nothing is copied. */
bool tri_page_asset(const char *name, const void **bytes, size_t *num_bytes, const char **type);

#endif
