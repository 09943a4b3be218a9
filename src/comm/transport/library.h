/* Code that is opened while the program runs, from a file whose owner is asked first. */
#ifndef TRI_COMM_TRANSPORT_LIBRARY_H
#define TRI_COMM_TRANSPORT_LIBRARY_H

#include <stdbool.h>
#include <stddef.h>

typedef struct tri_library {
    void *handle; /* of dlopen; NULL: none is open */
    int file;     /* kept open as long as the library is, -1: none */
} tri_library;

/* Opens a file as a library, links in its path followed. The file must be a regular one that root
 * or the owner of this program owns (or, with own, the user who runs it), and neither it nor the
 * directory it lies in may be writable for the group or for others. What is judged is what is
 * opened: the path is not looked up again in between. False, and why not, without having run
 * anything of it. */
bool tri_library_open(tri_library *library, const char *path, int flags, bool own, char *why,
                      size_t capacity);
/* The same by a name without a path, which the system's loader looks for in its own places. */
bool tri_library_find(tri_library *library, const char *name, int flags, char *why,
                      size_t capacity);
void tri_library_close(tri_library *library);

#endif
