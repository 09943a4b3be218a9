/* What a rank hears from whoever answers at the address of the control server: before and after it
 * was welcomed. The first byte says whether a good WELCOME comes first, or only the proof that
 * makes a rank listen to it; then come blocks (control_frames.h). */
#include "fuzz.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "comm/control/control_hello.h"
#include "control_frames.h"

#define TOKEN "a token of the harness"

typedef struct impostor {
    int listener;
    bool proves, welcomes;
    const uint8_t *data;
    size_t num_bytes;
} impostor;

/* As the job's server does, up to the welcome or with it. */
static void prove(int fd, bool welcomes)
{
    static const unsigned char nonce[TRI_AUTH_BYTES];
    tri_wire_out out = {0};
    tri_wire_in in = {0};
    tri_wire_frame frame;
    tri_hello hello;
    const char *wrong;
    tri_challenge_write(&out, nonce);
    tri_wire_send(&out, fd);
    struct pollfd p = {.fd = fd, .events = POLLIN};
    while (tri_wire_take(&in, TRI_WIRE_MAX_BYTES, &frame, &wrong) == 0)
        fuzz_require(poll(&p, 1, 10000) > 0 && tri_wire_receive(&in, fd), "a rank says hello");
    fuzz_require(!tri_hello_read(&frame, &hello, TOKEN, nonce), "a rank knows the token");
    tri_proof_write(&out, &hello, TOKEN, nonce);
    if (welcomes)
        tri_welcome_write(&out, &(tri_welcome){.deadline_s = 1, .local_size = 2});
    tri_wire_send(&out, fd);
    tri_wire_out_fini(&out);
    tri_wire_in_fini(&in);
}

static void *answer(void *argument)
{
    impostor *s = argument;
    char heard[4096];
    int fd = accept(s->listener, NULL, NULL);
    fuzz_require(fd >= 0, "the rank calls");
    if (s->proves)
        prove(fd, s->welcomes);
    uint8_t block[CONTROL_BLOCK];
    size_t length;
    while ((length = control_block(&s->data, &s->num_bytes, block)) > 0)
        if (send(fd, block, length, MSG_NOSIGNAL) < 0)
            break;
    shutdown(fd, SHUT_WR);
    while (recv(fd, heard, sizeof heard, 0) > 0) {
    }
    fuzz_hang_up(fd);
    return NULL;
}

static void join(int port)
{
    tri_control_join join = {
        .address = "127.0.0.1", .port = port, .rank = 0, .size = 2, .token = TOKEN, .join_s = 20};
    tri_control_client *client;
    tr_error err = {0};
    if (!fuzz_fine(tri_control_client_create(&join, &client, &err), &err))
        return;
    const tri_bootstrap *boot = tri_control_client_bootstrap(client);
    char value[16];
    size_t num_bytes = 0;
    fuzz_require(boot->local_size >= 1 && boot->local_rank >= 0 &&
                     boot->local_rank < boot->local_size,
                 "a rank is one of those of its machine");
    if (fuzz_fine(boot->get(boot->context, "key", value, sizeof value, &num_bytes, &err), &err))
        fuzz_require(num_bytes <= sizeof value, "a value fits");
    const bool stopped = atomic_load(&boot->stop->stopped); /* before that it is being written */
    for (const char *c = stopped ? boot->stop->reason : ""; *c; c++)
        fuzz_require((unsigned char)*c >= ' ' || *c == '\n', "the reason to stop is plain text");
    tri_control_client_destroy(client, true);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t num_bytes)
{
    if (num_bytes == 0)
        return 0;
    fuzz_spare_ports();
    struct sockaddr_in own = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof own;
    impostor s = {.proves = data[0] & 3,
                  .welcomes = data[0] & 1,
                  .data = data + 1,
                  .num_bytes = num_bytes - 1};
    pthread_t thread;
    s.listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    fuzz_require(s.listener >= 0 && bind(s.listener, (struct sockaddr *)&own, sizeof own) == 0 &&
                     listen(s.listener, 1) == 0 &&
                     getsockname(s.listener, (struct sockaddr *)&own, &length) == 0,
                 "a port");
    fuzz_require(pthread_create(&thread, NULL, answer, &s) == 0, "a thread");
    join(ntohs(own.sin_port));
    pthread_join(thread, NULL);
    close(s.listener);
    return 0;
}
