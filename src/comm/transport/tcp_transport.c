/* Ranks of several machines over TCP, and nothing else to install: the plain way, for CPUs and
 * ordinary networks. Memory is ordinary memory; messages are in tcp_lane.c. */
#include "comm/comm_internal.h"
#include "comm/transport/tcp.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

static bool is_loopback(const char *address)
{
    return strncmp(address, "127.", 4) == 0 || strcmp(address, "::1") == 0;
}

/* The first address that is up and not the loopback. */
bool tri_outside_address(char *out, size_t capacity)
{
    struct ifaddrs *all, *at;
    bool found = false;
    if (getifaddrs(&all) != 0)
        return false;
    for (at = all; at != NULL && !found; at = at->ifa_next) {
        if (at->ifa_addr == NULL || at->ifa_addr->sa_family != AF_INET ||
            !(at->ifa_flags & IFF_UP) || (at->ifa_flags & IFF_LOOPBACK))
            continue;
        const struct sockaddr_in *in = (const struct sockaddr_in *)(void *)at->ifa_addr;
        found = inet_ntop(AF_INET, &in->sin_addr, out, (socklen_t)capacity) != NULL;
    }
    freeifaddrs(all);
    return found;
}

static tr_status tcp_create(const tri_bootstrap *bootstrap, void **state, tr_error *err)
{
    tri_tcp *tcp = calloc(1, sizeof *tcp);
    *state = tcp;
    if (tcp == NULL)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for the tcp transport");
    tcp->boot = bootstrap;
    snprintf(tcp->address, sizeof tcp->address, "%s",
             bootstrap->address[0] ? bootstrap->address : "127.0.0.1");
    /* A machine that knows its own name as the loopback would tell the others that. */
    if (is_loopback(tcp->address) && bootstrap->local_size < bootstrap->size)
        tri_outside_address(tcp->address, sizeof tcp->address);
    if (bootstrap->token == NULL || bootstrap->token[0] == '\0')
        return tri_fail(err, TR_ERROR_INPUT,
                        "transport tcp needs the job's token, and there is none; set "
                        "TRIREME_TOKEN to the same secret for all ranks");
    return TR_OK;
}

static void tcp_destroy(void *state)
{
    free(state);
}

static tr_status tcp_alloc(void *state, size_t num_bytes, void **memory, tr_error *err)
{
    (void)state;
    if (posix_memalign(memory, 4096, num_bytes + 1) != 0) {
        *memory = NULL;
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for %zu bytes", num_bytes);
    }
    memset(*memory, 0, num_bytes);
    return TR_OK;
}

static void tcp_free(void *state, void *memory)
{
    (void)state;
    free(memory);
}

const tri_transport tri_transport_tcp = {
    .name = "tcp",
    .create = tcp_create,
    .destroy = tcp_destroy,
    .alloc = tcp_alloc,
    .free = tcp_free,
    .io = &tri_tcp_io,
};
