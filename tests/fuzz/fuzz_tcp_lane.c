/* What a peer sends over tcp: messages of a collective, or of tr_send. The first byte of an input
 * chooses which, and what this end expects; the rest is what arrives, in two pieces. "H" and a byte
 * stand for a good head of that type, so that inputs get past it. */
#include "fuzz.h"

#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/checksum.h"
#include "comm/comm_internal.h"
#include "comm/transport/tcp.h"
#include "comm/transport/tcp_head.h"

enum { COUNT = 12, NUM_MESSAGES = 3 };

static const tri_about about = {.call = 1,
                                .count = COUNT,
                                .operation = TR_ALL_REDUCE,
                                .reduction = TRI_REDUCE_SUM,
                                .dtype = TRI_F32};

/* The input with its heads put in. */
static uint8_t *expand(const uint8_t *data, size_t num_bytes, bool sums, size_t *used)
{
    static const float zeros[COUNT];
    tri_crc sum = {0};
    tri_crc_add(&sum, zeros, sizeof zeros);
    uint64_t data_sum = tri_crc_end(&sum);
    uint8_t *out = malloc(num_bytes * sizeof(tri_tcp_head) + 1);
    fuzz_require(out != NULL, "memory");
    uint64_t number = 1;
    *used = 0;
    for (size_t i = 0; i < num_bytes; i++) {
        if (data[i] != 'H' || i + 1 == num_bytes) {
            out[(*used)++] = data[i];
            continue;
        }
        uint8_t what = data[++i];
        tri_tcp_head head = {.magic = TRI_TCP_MAGIC,
                             .type = what & 7,
                             .number = number,
                             .num_bytes = what & 8 ? 0 : COUNT * sizeof(float),
                             .about = about};
        number += what & 16 ? 1 : 0;
        if (sums)
            tri_tcp_head_seal(&head, what & 32 ? data_sum : 0);
        memcpy(out + *used, &head, sizeof head);
        *used += sizeof head;
    }
    return out;
}

typedef struct world {
    tr_comm comm;
    tri_ports ports;
    tri_queue sends[2], recvs[2];
    _Atomic uint64_t signals[2 * TR_NUM_SIGNALS];
    tri_port_message messages[NUM_MESSAGES];
    float *memory;
    int far; /* the peer's end */
} world;

static void open_world(world *w, uint8_t mode)
{
    static const int ranks[2] = {0, 1};
    int pair[2];
    tri_tcp_end ends[2] = {{.fd = -1}, {.fd = -1}};
    tr_error err = {0};
    memset(w, 0, sizeof *w);
    fuzz_require(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0,
                 "a pair of sockets");
    w->far = pair[1];
    ends[1] = (tri_tcp_end){.fd = pair[0], .sums = mode & 8};
    w->ports = (tri_ports){.comm = &w->comm,
                           .size = 2,
                           .ranks = ranks,
                           .sends = w->sends,
                           .recvs = w->recvs,
                           .signals = w->signals};
    w->ports.io = &tri_tcp_io;
    fuzz_require(tri_tcp_adopt(&w->ports, ends, mode & 1, &err) == TR_OK, "a lane");
    w->memory = calloc(NUM_MESSAGES * COUNT, sizeof *w->memory);
    fuzz_require(w->memory != NULL, "memory");
    for (int i = 0; i < NUM_MESSAGES; i++) {
        w->messages[i] =
            (tri_port_message){.data = (char *)(w->memory + i * COUNT),
                               .num_bytes = i == 2 && (mode & 2) ? 0 : COUNT * sizeof(float),
                               .peer = 1,
                               .is_send = i == 1,
                               .combine = i == 0 && (mode & 4) && !(mode & 1),
                               .dtype = TRI_F32,
                               .reduction = TRI_REDUCE_SUM,
                               .about = mode & 1 ? NULL : &about};
        tri_ports_post(&w->ports, &w->messages[i]);
    }
}

static void arrive(world *w, const uint8_t *data, size_t num_bytes)
{
    while (num_bytes > 0) {
        ssize_t n = send(w->far, data, num_bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n > 0) {
            data += n;
            num_bytes -= (size_t)n;
        }
        bool moved = tri_tcp_io.progress(&w->ports);
        if (n <= 0 && !moved)
            return; /* nobody reads on */
    }
    struct pollfd polls[3];
    while (tri_tcp_io.progress(&w->ports)) {
    }
    fuzz_require(tri_tcp_io.interest(&w->ports, polls) <= 3, "a lane waits on its own sockets");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t num_bytes)
{
    if (num_bytes == 0)
        return 0;
    static world w;
    size_t used;
    uint8_t *stream = expand(data + 1, num_bytes - 1, data[0] & 8, &used);
    open_world(&w, data[0]);
    size_t middle = used / 2;
    arrive(&w, stream, middle);
    arrive(&w, stream + middle, used - middle);
    for (int i = 0; i < NUM_MESSAGES; i++)
        fuzz_require(w.messages[i].moved <= w.messages[i].num_bytes, "no more arrives than fits");
    close(w.far);
    tri_tcp_io.close(&w.ports);
    free(w.memory);
    free(stream);
    return 0;
}
