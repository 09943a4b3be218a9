/* A bad network: carries frames between two interfaces, each some milliseconds later, and loses
 * some. For tests with network namespaces; runs until it is killed.
 *
 *     packet_relay INTERFACE INTERFACE DELAY_MS LOSS_PERCENT
 *
 * Which frames are lost follows from a seed, so that a run can be repeated. Frames travel with the
 * header by which the kernel hands over checksums and segments that it has not made yet
 * (PACKET_VNET_HDR): what passes here is as it was. */
#include <arpa/inet.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

enum { MOST_BYTES = 70000, MOST_FRAMES = 4096 };

struct frame {
    uint64_t due_ns;
    int to;
    size_t num_bytes;
    char *bytes;
};

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static int open_interface(const char *name)
{
    int yes = 1, fd = socket(AF_PACKET, SOCK_RAW, htons(ETH_P_ALL));
    struct sockaddr_ll at = {.sll_family = AF_PACKET,
                             .sll_protocol = htons(ETH_P_ALL),
                             .sll_ifindex = (int)if_nametoindex(name)};
    if (fd < 0 || setsockopt(fd, SOL_PACKET, PACKET_VNET_HDR, &yes, sizeof yes) != 0 ||
        bind(fd, (struct sockaddr *)&at, sizeof at) != 0) {
        perror(name);
        exit(1);
    }
    setsockopt(fd, SOL_PACKET, PACKET_IGNORE_OUTGOING, &yes, sizeof yes);
    return fd;
}

int main(int argc, char **argv)
{
    static struct frame ring[MOST_FRAMES];
    static char bytes[MOST_BYTES];
    if (argc != 5)
        return 2;
    int fd[2] = {open_interface(argv[1]), open_interface(argv[2])};
    uint64_t delay_ns = (uint64_t)(atof(argv[3]) * 1e6), first = 0, end = 0;
    uint32_t loss = (uint32_t)(atof(argv[4]) * 0.01 * 4294967295.0), seed = 12345;
    printf("ready\n");
    fflush(stdout);
    for (;;) {
        uint64_t now = now_ns();
        for (; first < end && ring[first % MOST_FRAMES].due_ns <= now; first++) {
            struct frame *f = &ring[first % MOST_FRAMES];
            if (send(fd[f->to], f->bytes, f->num_bytes, 0) < 0)
                perror("send");
            free(f->bytes);
        }
        struct pollfd polls[2] = {{fd[0], POLLIN, 0}, {fd[1], POLLIN, 0}};
        uint64_t left = first < end ? ring[first % MOST_FRAMES].due_ns - now : 100000000;
        struct timespec wait = {.tv_nsec = (long)(left < 100000000 ? left : 100000000)};
        if (ppoll(polls, 2, &wait, NULL) <= 0)
            continue;
        for (int i = 0; i < 2; i++) {
            ssize_t n = polls[i].revents ? recv(fd[i], bytes, sizeof bytes, MSG_DONTWAIT) : -1;
            seed = seed * 1664525u + 1013904223u;
            if (n <= 0 || end - first == MOST_FRAMES || seed < loss)
                continue;
            struct frame *f = &ring[end++ % MOST_FRAMES];
            *f = (struct frame){now_ns() + delay_ns, 1 - i, (size_t)n, malloc((size_t)n)};
            if (f->bytes == NULL)
                return 1;
            memcpy(f->bytes, bytes, (size_t)n);
        }
    }
}
