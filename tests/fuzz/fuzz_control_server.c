/* What the control server hears: from two connections of anybody, or of ranks that have joined. The
 * first byte says which of them begin with a good HELLO; then come blocks (control_frames.h), each
 * after a byte that says over which connection. */
#include "fuzz.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "comm/control/control_hello.h"
#include "control_frames.h"

#define TOKEN "a token of the harness"

static void ignore(void *context, const char *line)
{
    for (; *line; line++)
        fuzz_require((unsigned char)*line >= ' ', "a line of the log is one line");
    (void)context;
}

static void settle(tri_control_server *server)
{
    for (int i = 0; i < 4; i++)
        tri_control_server_step(server, 0);
}

/* The server has sent its challenge; the hello is the answer to it. */
static void say_hello(int fd, int rank)
{
    tri_wire_in in = {0};
    tri_wire_frame frame;
    const char *wrong;
    unsigned char challenge[TRI_AUTH_BYTES];
    fuzz_require(tri_wire_receive(&in, fd) &&
                     tri_wire_take(&in, TRI_WIRE_MAX_BYTES, &frame, &wrong) == 1 &&
                     tri_challenge_read(&frame, challenge),
                 "a server challenges");
    tri_wire_in_fini(&in);
    tri_wire_out out = {0};
    tri_hello hello = {
        .rank = (uint32_t)rank, .size = 2, .pid = 1, .host = "host", .host_id = "id"};
    fuzz_require(tri_hello_write(&out, &hello, TOKEN, challenge), "memory");
    tri_wire_send(&out, fd);
    tri_wire_out_fini(&out);
}

static int call(int port)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    to.sin_port = htons((uint16_t)port);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    fuzz_require(fd >= 0 && connect(fd, (struct sockaddr *)&to, sizeof to) == 0,
                 "the server listens");
    return fd;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t num_bytes)
{
    if (num_bytes == 0)
        return 0;
    fuzz_spare_ports();
    tri_control_config config = {.address = "127.0.0.1",
                                 .size = 2,
                                 .token = TOKEN,
                                 .deadline_s = 100,
                                 .join_s = 100,
                                 .log = ignore};
    tri_control_server *server;
    tr_error err = {0};
    int fds[2];
    fuzz_require(tri_control_server_create(&config, &server, &err) == TR_OK, "a server");
    for (int i = 0; i < 2; i++) {
        fds[i] = call(tri_control_server_port(server));
        settle(server);
        if (data[0] & 1 << i)
            say_hello(fds[i], i);
    }
    settle(server);
    if ((data[0] & 3) == 3)
        fuzz_require(tri_control_server_joined(server), "ranks that know the token are welcome");
    const uint8_t *next = data + 1;
    size_t left = num_bytes - 1, length;
    uint8_t block[CONTROL_BLOCK];
    while (left > 0) {
        int fd = fds[*next++ & 1];
        left--;
        if ((length = control_block(&next, &left, block)) == 0)
            break;
        ssize_t sent = send(fd, block, length, MSG_NOSIGNAL | MSG_DONTWAIT);
        (void)sent;
        settle(server);
    }
    if ((data[0] & 3) != 3) /* the challenge is new each time: no input is an answer to it */
        fuzz_require(!tri_control_server_joined(server),
                     "who does not know the token does not join");
    for (int i = 0; i < 2; i++)
        fuzz_hang_up(fds[i]);
    settle(server);
    tri_control_server_destroy(server);
    return 0;
}
