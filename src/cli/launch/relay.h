/* Output that is passed on without ever waiting for its reader.
 *
 * A launcher shows what rank 0 writes. A reader that stops reading (a pager, Ctrl-S, a full pipe)
 * must not hold up the process that watches the ranks and takes signals, and one that goes (head, a
 * tee that Ctrl-C ended, a full disk) must not end the run: all output is in the rank's log. */
#ifndef TRI_CLI_LAUNCH_RELAY_H
#define TRI_CLI_LAUNCH_RELAY_H

#include <stdbool.h>
#include <stddef.h>

typedef struct tri_relay {
    int fd;
    char *pending; /* what the reader had no room for yet */
    size_t num_bytes, capacity;
    bool line_open; /* what was written last did not end its line */
    int lost;       /* errno of the last write that failed; 0: none did */
    bool dropped;   /* the reader was so far behind that bytes were left out */
} tri_relay;

void tri_relay_init(tri_relay *relay, int fd);
void tri_relay_fini(tri_relay *relay);
/* Takes bytes, and writes as many as the reader has room for now; 0 bytes: only the latter. */
void tri_relay_add(tri_relay *relay, const char *data, size_t num_bytes);
/* Waits for the reader as long as it takes something every few seconds. A reader that does not is
 * left without the rest. */
void tri_relay_finish(tri_relay *relay);

/* Whether a short write to the descriptor returns at once, now or within so long. */
bool tri_has_room(int fd, int timeout_ms);

#endif
