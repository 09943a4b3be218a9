/* Packing: best-fit, in the order given. A piece goes into the fullest open row that has room
 * for it. Rows with equal room are kept in lists, one for each amount of room, and a bit for each
 * list that is not empty, so that finding the best takes seq_len / 64 steps at most. */
#include "data/source/pack.h"

#include <stdlib.h>
#include <string.h>

typedef struct packer {
    uint64_t *used;  /* a bit for each list that is not empty */
    size_t words;    /* of used */
    uint32_t *first; /* of the list for each amount of room; UINT32_MAX: none */
    uint32_t *next;  /* of each row, in its list */
    uint32_t *row;   /* of each piece */
    size_t num_rows;
} packer;

/* The smallest amount of room, at least `need`, that a row has; SIZE_MAX: none has. */
static size_t best_room(const packer *p, size_t need)
{
    size_t w = need / 64;
    uint64_t bits = p->used[w] & ~(uint64_t)0 << need % 64;
    while (bits == 0) {
        if (++w == p->words)
            return SIZE_MAX;
        bits = p->used[w];
    }
    return 64 * w + (size_t)__builtin_ctzll(bits);
}

static uint32_t take_row(packer *p, size_t room)
{
    uint32_t row = p->first[room];
    p->first[room] = p->next[row];
    if (p->first[room] == UINT32_MAX)
        p->used[room / 64] &= ~((uint64_t)1 << room % 64);
    return row;
}

static void put_row(packer *p, size_t room, uint32_t row)
{
    p->next[row] = p->first[room];
    p->first[room] = row;
    p->used[room / 64] |= (uint64_t)1 << room % 64;
}

static void assign(packer *p, const int32_t *places, size_t num, size_t seq_len)
{
    for (size_t i = 0; i < num; i++) {
        size_t need = (size_t)places[i], room = best_room(p, need);
        uint32_t row = room == SIZE_MAX ? (uint32_t)p->num_rows++ : take_row(p, room);
        p->row[i] = row;
        put_row(p, (room == SIZE_MAX ? seq_len : room) - need, row);
    }
}

/* Sorts by row, keeping the order within one. */
static bool sort_by_row(const packer *p, uint32_t *order, size_t num, size_t base, size_t *begin)
{
    uint32_t *sorted = malloc(num * sizeof *sorted);
    size_t *at = calloc(p->num_rows + 1, sizeof *at);
    if (sorted && at) {
        for (size_t i = 0; i < num; i++)
            at[p->row[i] + 1]++;
        for (size_t r = 0; r < p->num_rows; r++) {
            at[r + 1] += at[r];
            begin[r] = base + at[r];
        }
        for (size_t i = 0; i < num; i++)
            sorted[at[p->row[i]]++] = order[i];
        memcpy(order, sorted, num * sizeof *sorted);
    }
    bool done = sorted && at;
    free(sorted);
    free(at);
    return done;
}

size_t tri_pack(const int32_t *places, uint32_t *order, size_t num, int64_t seq_len, size_t base,
                size_t *begin)
{
    size_t lists = (size_t)seq_len + 1;
    packer p = {.words = lists / 64 + 1};
    p.used = calloc(p.words, sizeof *p.used);
    p.first = malloc(lists * sizeof *p.first);
    p.next = malloc(num * sizeof *p.next);
    p.row = malloc(num * sizeof *p.row);
    bool done = p.used && p.first && p.next && p.row;
    if (done) {
        memset(p.first, 0xff, lists * sizeof *p.first);
        assign(&p, places, num, (size_t)seq_len);
        done = sort_by_row(&p, order, num, base, begin);
    }
    free(p.used);
    free(p.first);
    free(p.next);
    free(p.row);
    return done ? p.num_rows : 0;
}

void tri_pack_places(const tri_row *row, int64_t at, int64_t places, int32_t which)
{
    for (int64_t i = 0; i < places; i++) {
        if (row->positions)
            row->positions[at + i] = (int32_t)i;
        if (row->docs)
            row->docs[at + i] = which;
    }
}

void tri_pack_padding(const tri_row *row, int64_t at, int64_t seq_len)
{
    for (; at < seq_len; at++) {
        if (row->positions)
            row->positions[at] = 0;
        if (row->docs)
            row->docs[at] = -1;
    }
}
