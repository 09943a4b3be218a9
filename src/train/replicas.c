#include "train/replicas.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checksum.h"
#include "base/clock.h"
#include "train/ckpt/checkpoint_parts.h"

typedef uint64_t pair[2];

enum { ROOM_BYTES = 8 << 20, MOST_NAME = 160, MOST_NAMED = 8, COUNTS = 0 /* the group */ };

/* ---- what is compared ---- */

/* Names a piece: the tensor, what of it, and in which type. */
static uint64_t key_of(const tri_piece *p)
{
    tri_checksum hash;
    int64_t numbers[2] = {p->kind, p->dtype};
    tri_checksum_init(&hash);
    tri_checksum_add(&hash, p->name, strlen(p->name) + 1);
    tri_checksum_add(&hash, numbers, sizeof numbers);
    tri_checksum_add(&hash, p->region.begin, sizeof p->region.begin);
    tri_checksum_add(&hash, p->region.size, sizeof p->region.size);
    tri_checksum_add(&hash, &p->region.first, sizeof p->region.first);
    tri_checksum_add(&hash, &p->region.count, sizeof p->region.count);
    return tri_checksum_end(&hash);
}

/* Somebody's key. */
typedef struct held_key {
    uint64_t key, holder;
} held_key;

static int by_pair(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;
    return x[0] != y[0] ? (x[0] < y[0] ? -1 : 1) : x[1] < y[1] ? -1 : x[1] > y[1];
}

static int by_key(const void *a, const void *b)
{
    const held_key *x = a, *y = b;
    return by_pair((pair){x->key, x->holder}, (pair){y->key, y->holder});
}

/* The same number of words of every rank. */
static tr_status gather(const tri_replicas *r, const void *own, void *all, size_t num_words,
                        tr_error *err)
{
    return tr_all_gather(tr_comm_world(r->ranks->comm), own, all, num_words, TR_I64, err);
}

static tr_status most_of(const tri_replicas *r, size_t own, size_t *most, tr_error *err)
{
    int64_t mine = (int64_t)own, found = 0;
    TRI_TRY(tr_all_reduce(tr_comm_world(r->ranks->comm), &mine, &found, 1, TR_I64, TR_MAX, err));
    *most = (size_t)found;
    return TR_OK;
}

/* A number for the set of ranks that hold a key; 0: nobody else does. */
static uint64_t holders_of(const held_key *all, size_t num, uint64_t key)
{
    size_t low = 0, high = num;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (all[middle].key < key)
            low = middle + 1;
        else
            high = middle;
    }
    uint64_t set = 0, count = 0;
    for (size_t i = low; i < num && all[i].key == key; i++, count++)
        set += (all[i].holder + 1) * 0x9E3779B97F4A7C15u ^ (set << 27 | set >> 37);
    return count > 1 ? set | 2 : 0; /* neither 0 nor that of COUNTS */
}

static int64_t group_for(tri_replicas *r, uint64_t holders)
{
    for (size_t g = 0; g < r->num_groups; g++)
        if (r->groups[g][0] == holders)
            return (int64_t)g;
    r->groups[r->num_groups][0] = holders;
    return (int64_t)r->num_groups++;
}

/* Keeps the pieces that others hold too. all: keys of all ranks, `each` of them from each. */
static void keep_shared(tri_replicas *r, held_key *all, size_t num)
{
    qsort(all, num, sizeof *all, by_key);
    for (size_t i = 0; i < r->pieces.num; i++) {
        uint64_t key = key_of(&r->pieces.piece[i]), holders = holders_of(all, num, key);
        if (holders != 0)
            r->replicas[r->num++] =
                (tri_replica){.key = key, .piece = i, .group = group_for(r, holders)};
    }
}

static tr_status find_shared(tri_replicas *r, tr_error *err)
{
    size_t each, size = (size_t)r->ranks->size;
    TRI_TRY(most_of(r, r->pieces.num, &each, err));
    uint64_t *own = calloc(each + 1, sizeof *own), *told = calloc(each * size + 1, sizeof *told);
    held_key *all = calloc(each * size + 1, sizeof *all);
    r->replicas = calloc(r->pieces.num + 1, sizeof *r->replicas);
    r->groups = calloc(r->pieces.num + 2, sizeof *r->groups);
    tr_status status = TR_OK;
    if (!own || !told || !all || !r->replicas || !r->groups)
        status = tri_fail(err, TR_ERROR_RUNTIME, "no memory to list what ranks hold copies of");
    else
        r->groups[r->num_groups++][0] = 1; /* COUNTS, of all ranks */
    for (size_t i = 0; status == TR_OK && i < r->pieces.num; i++)
        own[i] = key_of(&r->pieces.piece[i]);
    if (status == TR_OK)
        status = gather(r, own, told, each, err);
    size_t num = 0;
    for (size_t i = 0; status == TR_OK && i < each * size; i++)
        if (told[i] != 0) /* some have fewer */
            all[num++] = (held_key){told[i], i / each};
    if (status == TR_OK)
        keep_shared(r, all, num);
    free(own);
    free(told);
    free(all);
    return status;
}

tr_status tri_replicas_open(tri_replicas *r, tri_session *session, tri_ranks *ranks, tr_error *err)
{
    *r = (tri_replicas){.session = session, .ranks = ranks, .compared = -1};
    if (ranks->size == 1)
        return TR_OK;
    TRI_TRY(tri_pieces_list(session, &r->pieces, err));
    TRI_TRY(find_shared(r, err));
    TRI_TRY(most_of(r, r->num_groups, &r->most_groups, err));
    r->told = calloc((size_t)ranks->size * r->most_groups + 1, sizeof *r->told);
    pair *groups = realloc(r->groups, (r->most_groups + 1) * sizeof *groups);
    if (groups) {
        r->groups = groups;
        memset(groups + r->num_groups, 0, (r->most_groups + 1 - r->num_groups) * sizeof *groups);
    }
    const tri_device_queue *queue = session->device.def->queue;
    bool copies = queue || tri_store_bytes_at(&session->store, TRI_WHERE_FILE) > 0;
    if (copies)
        r->room = queue ? queue->alloc_host(ROOM_BYTES) : malloc(ROOM_BYTES);
    if (!r->told || !groups || (copies && !r->room))
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory to compare what ranks hold copies of");
    return TR_OK;
}

void tri_replicas_close(tri_replicas *r)
{
    if (r->room && r->session->device.def->queue)
        r->session->device.def->queue->free_host(r->room);
    else
        free(r->room);
    tri_pieces_free(&r->pieces);
    free(r->replicas);
    free(r->groups);
    free(r->told);
    *r = (tri_replicas){0};
}

/* ---- sums ---- */

static size_t bytes_of(const tri_piece *p)
{
    return tri_dtype_size(p->dtype, p->region.count);
}

/* Of memory that the host can only copy from. */
static tr_status sum_copied(const tri_replicas *r, const tri_piece *p, uint64_t *sum, tr_error *err)
{
    const tri_executor *executor = &r->session->executors[TRI_PROGRAM_TRAIN];
    size_t bytes = bytes_of(p);
    *sum = 0;
    for (size_t at = 0; at < bytes; at += ROOM_BYTES) {
        size_t part = bytes - at < ROOM_BYTES ? bytes - at : ROOM_BYTES;
        memset((char *)r->room + part / 8 * 8, 0, part % 8 ? 8 : 0);
        TRI_TRY(tri_executor_read_part(executor, p->value, at, part, r->room, err));
        *sum += tri_sum_words(at / 8, r->room, (part + 7) / 8);
    }
    return TR_OK;
}

/* By the device, as many pieces at a time as there is room for their parts. */
static tr_status sum_there(tri_replicas *r, tr_error *err)
{
    enum { AT_ONCE = ROOM_BYTES / (TRI_DEVICE_SUM_PARTS * sizeof(uint64_t)) };
    const tri_device_queue *queue = r->session->device.def->queue;
    uint64_t(*parts)[TRI_DEVICE_SUM_PARTS] = r->room;
    for (size_t first = 0; first < r->num; first += AT_ONCE) {
        size_t num = r->num - first < AT_ONCE ? r->num - first : AT_ONCE;
        for (size_t i = 0; i < num; i++) {
            const tri_piece *p = &r->pieces.piece[r->replicas[first + i].piece];
            if (tri_piece_where(r->session, p) == TRI_WHERE_DEVICE)
                TRI_TRY(queue->sum(r->session->store.device, tri_piece_memory(r->session, p, 0),
                                   bytes_of(p), parts[i], err));
        }
        TRI_TRY(queue->finish(r->session->store.device, err));
        for (size_t i = 0; i < num; i++) {
            const tri_piece *p = &r->pieces.piece[r->replicas[first + i].piece];
            if (tri_piece_where(r->session, p) != TRI_WHERE_DEVICE)
                continue;
            r->replicas[first + i].sum = 0;
            for (int k = 0; k < TRI_DEVICE_SUM_PARTS; k++)
                r->replicas[first + i].sum += parts[i][k];
        }
    }
    return TR_OK;
}

static tr_status sum_pieces(tri_replicas *r, tr_error *err)
{
    const tri_device_queue *queue = r->session->device.def->queue;
    bool there = queue && queue->sum;
    if (there)
        TRI_TRY(sum_there(r, err));
    for (size_t i = 0; i < r->num; i++) {
        const tri_piece *p = &r->pieces.piece[r->replicas[i].piece];
        const void *memory = tri_piece_on_host(r->session, p, 0);
        if (there && tri_piece_where(r->session, p) == TRI_WHERE_DEVICE)
            continue;
        if (memory)
            r->replicas[i].sum = tri_sum_bytes(memory, bytes_of(p));
        else
            TRI_TRY(sum_copied(r, p, &r->replicas[i].sum, err));
    }
    return TR_OK;
}

/* What all ranks count alike: steps, skipped ones, the loss scale. */
static tr_status sum_counts(const tri_replicas *r, uint64_t *sum, tr_error *err)
{
    const tri_session *s = r->session;
    struct {
        int64_t step, skipped;
        float scaler[TRI_NUM_SCALER];
    } counts = {.step = s->step, .skipped = s->skipped};
    tri_id value = tri_checkpoint_scaler(s);
    if (value != TRI_NONE)
        TRI_TRY(tri_executor_read(&s->executors[TRI_PROGRAM_TRAIN], value, counts.scaler, err));
    *sum = tri_sum_bytes(&counts, sizeof counts);
    return TR_OK;
}

static tr_status sum_all(tri_replicas *r, tr_error *err)
{
    for (size_t g = 0; g < r->num_groups; g++)
        r->groups[g][1] = 0;
    TRI_TRY(sum_counts(r, &r->groups[COUNTS][1], err));
    TRI_TRY(sum_pieces(r, err));
    for (size_t i = 0; i < r->num; i++) {
        const tri_replica *replica = &r->replicas[i];
        uint64_t *sum = &r->groups[replica->group][1];
        *sum += (replica->sum ^ replica->key) * 0xFF51AFD7ED558CCDu; /* odd: a bijection */
    }
    return TR_OK;
}

/* ---- differences ---- */

/* "2", "0, 1 and 3" */
static void list_ranks(const int *ranks, size_t num, char *out, size_t capacity)
{
    size_t used = 0, shown = num > MOST_NAMED ? MOST_NAMED : num;
    out[0] = '\0';
    for (size_t i = 0; i < shown && used < capacity; i++)
        used += (size_t)snprintf(out + used, capacity - used, "%s%d",
                                 i == 0                           ? ""
                                 : i + 1 == shown && shown == num ? " and "
                                                                  : ", ",
                                 ranks[i]);
    if (num > shown && used < capacity)
        snprintf(out + used, capacity - used, " and %zu more", num - shown);
}

/* Of those who hold a key: {holder, sum}, and which sum most have; false: there is no such one. */
static bool most_frequent(const pair *told, size_t num, uint64_t *sum)
{
    size_t most = 0, seconds = 0;
    for (size_t i = 0; i < num; i++) {
        size_t count = 0;
        bool first = true;
        for (size_t j = 0; j < num; j++) {
            count += told[j][1] == told[i][1];
            first &= j >= i || told[j][1] != told[i][1];
        }
        if (first && count > most) {
            seconds = most;
            most = count;
            *sum = told[i][1];
        } else if (first && count > seconds) {
            seconds = count;
        }
    }
    return most > seconds;
}

static tr_status describe(const tri_replicas *r, const char *name, const pair *told, size_t num,
                          size_t num_wrong, tr_error *err)
{
    int *odd = calloc(num, sizeof *odd), *rest = calloc(num, sizeof *rest);
    size_t num_odd = 0, num_rest = 0;
    char a[120] = "", b[120] = "", more[48] = "";
    uint64_t common = 0;
    bool clear = most_frequent(told, num, &common);
    for (size_t i = 0; odd && rest && i < num; i++) {
        bool is_odd = clear && told[i][1] != common;
        *(is_odd ? &odd[num_odd++] : &rest[num_rest++]) = (int)told[i][0];
    }
    list_ranks(odd, odd ? num_odd : 0, a, sizeof a);
    list_ranks(rest, rest ? num_rest : 0, b, sizeof b);
    if (num_wrong > 1)
        snprintf(more, sizeof more, " (and of %zu more tensors)", num_wrong - 1);
    free(odd);
    free(rest);
    int64_t step = r->session->step;
    if (clear)
        return tri_fail(err, TR_ERROR_RUNTIME,
                        "after step %" PRId64
                        " rank%s %s hold%s other bits of %s%s than rank%s %s, "
                        "though all are copies: a memory or a network has changed them",
                        step, num_odd == 1 ? "" : "s", a, num_odd == 1 ? "s" : "", name, more,
                        num_rest == 1 ? "" : "s", b);
    return tri_fail(err, TR_ERROR_RUNTIME,
                    "after step %" PRId64 " ranks %s hold different bits of %s%s, though all are "
                    "copies: a memory or a network has changed them",
                    step, b, name, more);
}

/* What a rank says of a piece. */
typedef struct claim {
    uint64_t key, at, sum; /* at: who says it, and which of its pieces it is */
} claim;

static int by_claim(const void *a, const void *b)
{
    const claim *x = a, *y = b;
    return x->key != y->key ? (x->key < y->key ? -1 : 1) : x->at < y->at ? -1 : x->at > y->at;
}

/* Of claims in order, the run of those that name one piece; whether they differ. */
static bool next_run(const claim *claims, size_t num, size_t *begin, size_t *end)
{
    bool differ = false;
    *begin = *end;
    for (; *end < num && claims[*end].key == claims[*begin].key; ++*end)
        differ |= claims[*end].sum != claims[*begin].sum;
    return differ;
}

/* Every rank has the same claims, and so finds the same: the first tensor of the first rank that
 * differs. Who holds it tells its name. */
static tr_status name_first(const tri_replicas *r, const claim *claims, size_t num, size_t each,
                            tr_error *err)
{
    size_t begin, end = 0, first = 0, length = 0, num_wrong = 0;
    while (end < num)
        if (next_run(claims, num, &begin, &end)) {
            if (num_wrong++ == 0 || claims[begin].at < claims[first].at) {
                first = begin;
                length = end - begin;
            }
        }
    if (num_wrong == 0)
        return tri_fail(err, TR_ERROR_RUNTIME,
                        "after step %" PRId64
                        " ranks count different steps, or have different loss "
                        "scales, though their weights are equal: a memory has changed bits",
                        r->session->step);
    char name[MOST_NAME] = "";
    int holder = (int)(claims[first].at / each);
    if (holder == r->ranks->rank) {
        const tri_piece *p = &r->pieces.piece[r->replicas[claims[first].at % each].piece];
        snprintf(name, sizeof name, "%.*s%s%s", MOST_NAME - 24, p->name,
                 p->dtype == TRI_F32 ? "" : " in ",
                 p->dtype == TRI_F32 ? "" : tri_dtype_name(p->dtype));
    }
    TRI_TRY(tr_broadcast(tr_comm_world(r->ranks->comm), name, sizeof name, TR_U8, holder, err));
    name[sizeof name - 1] = '\0';
    pair *found = calloc(length, sizeof *found);
    for (size_t i = 0; found && i < length; i++) {
        found[i][0] = claims[first + i].at / each;
        found[i][1] = claims[first + i].sum;
    }
    tr_status status = describe(r, name, found, found ? length : 0, num_wrong, err);
    free(found);
    return status;
}

static tr_status find_difference(const tri_replicas *r, tr_error *err)
{
    size_t each, num = 0, size = (size_t)r->ranks->size;
    TRI_TRY(most_of(r, r->num, &each, err));
    pair *own = calloc(each + 1, sizeof *own), *all = calloc(each * size + 1, sizeof *all);
    claim *claims = calloc(each * size + 1, sizeof *claims);
    tr_status status = TR_OK;
    if (!own || !all || !claims)
        status = tri_fail(err, TR_ERROR_RUNTIME,
                          "copies of weights differ between ranks, and there is no memory to find "
                          "out which");
    for (size_t i = 0; status == TR_OK && i < r->num; i++) {
        own[i][0] = r->replicas[i].key;
        own[i][1] = r->replicas[i].sum;
    }
    if (status == TR_OK)
        status = gather(r, own, all, 2 * each, err);
    for (size_t i = 0; status == TR_OK && i < each * size; i++)
        if (all[i][0] != 0) /* some have fewer */
            claims[num++] = (claim){.key = all[i][0], .at = i, .sum = all[i][1]};
    qsort(claims, num, sizeof *claims, by_claim);
    if (status == TR_OK)
        status = name_first(r, claims, num, each, err);
    free(own);
    free(all);
    free(claims);
    return status;
}

tr_status tri_replicas_compare(tri_replicas *r, tr_error *err)
{
    if (r->most_groups == 0 || r->compared == r->session->step)
        return TR_OK;
    uint64_t begin = tri_now_ns();
    TRI_TRY(sum_all(r, err));
    TRI_TRY(gather(r, r->groups, r->told, 2 * r->most_groups, err));
    size_t num = (size_t)r->ranks->size * r->most_groups;
    qsort(r->told, num, sizeof *r->told, by_pair);
    bool differ = false;
    for (size_t i = 1; i < num; i++) /* those without holders are not used */
        differ |= r->told[i][0] != 0 && r->told[i][0] == r->told[i - 1][0] &&
                  r->told[i][1] != r->told[i - 1][1];
    r->seconds = 1e-9 * (double)(tri_now_ns() - begin);
    if (differ)
        return find_difference(r, err);
    r->compared = r->session->step;
    return TR_OK;
}
