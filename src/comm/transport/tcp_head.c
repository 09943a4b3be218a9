#include "comm/transport/tcp_head.h"

#include "base/checksum.h"
#include "comm/comm_internal.h"

#include <stdio.h>

static uint64_t sum_of(const tri_tcp_head *head)
{
    tri_tcp_head plain = *head;
    tri_crc sum = {0};
    plain.head_sum = 0;
    tri_crc_add(&sum, &plain, sizeof plain);
    return tri_crc_end(&sum);
}

void tri_tcp_head_seal(tri_tcp_head *head, uint64_t data_sum)
{
    head->sum = data_sum;
    head->head_sum = sum_of(head);
}

const char *tri_tcp_head_wrong(const tri_tcp_head *head, bool sums)
{
    if (sums && head->head_sum != sum_of(head))
        return "the head of a message differs from the one that was sent (run.message_sums): the "
               "network or a memory changes bits";
    return head->magic != TRI_TCP_MAGIC ? "it speaks another protocol" : NULL;
}

bool tri_tcp_head_fits(const tri_tcp_head *head, const tri_ports *ports, tri_port_message *m)
{
    int peer = ports->ranks[m->peer];
    if (head->type != TRI_TCP_DATA || head->number != m->number) {
        m->status = TR_ERROR_RUNTIME;
        snprintf(m->why, sizeof m->why,
                 "rank %d sent a frame of type %u, number %llu, where message %llu should come",
                 peer, head->type, (unsigned long long)head->number, (unsigned long long)m->number);
        return false;
    }
    if (!tri_port_message_same_call(m, peer, &head->about))
        return false;
    if (head->num_bytes != m->num_bytes)
        tri_port_message_refuse(m, head->num_bytes, m->num_bytes);
    return m->status == TR_OK;
}

bool tri_tcp_sum_fits(const tri_tcp_head *head, uint64_t sum, const tri_ports *ports,
                      tri_port_message *m)
{
    char bytes[32];
    if (sum == head->sum)
        return true;
    m->status = TR_ERROR_RUNTIME;
    snprintf(m->why, sizeof m->why,
             "the %s bytes from rank %d are not those that it sent to rank %d (checksum "
             "%016llx, not %016llx): the network or a memory changes bits",
             tri_grouped_digits(m->num_bytes, bytes), ports->ranks[m->peer],
             ports->ranks[ports->me], (unsigned long long)sum, (unsigned long long)head->sum);
    return false;
}
