/* The rules, in the order of the loops:
 *
 *  1. tp divides the devices, is at most the heads, and at most two nodes wide: beyond that its
 *     sums cross the network twice.
 *  2. cp leaves a rank at least 1,024 tokens of a row.
 *  3. ep divides the experts and lies on dp x cp.
 *  4. A stage has a layer at least.
 *  5. Micro-batches have a power of two of rows, or all that a rank has, or little less since they
 *     share the rows evenly. With those powers, what is padded is at most a twentieth of the batch.
 *  6. A pipeline has at least half as many micro-batches as stages.
 *  7. ZeRO needs something to divide over; its groups are a node, or all.
 *  8. Weights that stay put together, and prefetching, are of ZeRO 3; they are gathered two layers
 *     ahead, since one hides less and saves little memory. GPipe has the bubble of 1F1B and takes
 *     more memory: it is tried when asked for.
 *  9. An order that puts off gradients of weights keeps what they are made of, which full
 *     recomputation does not make less, so the two are not tried together.
 * 10. Recomputation that fits a budget takes long to plan, so it is no part of the product: the
 *     search tries it in the end, where the best layouts recompute more. */
#include "search/space.h"

#include <stdlib.h>
#include <string.h>

#include "base/arena.h"

enum { LEAST_TOKENS = 1024, PADDING = 20 };

tri_space_fixed tri_space_all_free(void)
{
    tri_space_fixed fixed;
    memset(&fixed, 0xff, sizeof fixed); /* every member TRI_FREE */
    return fixed;
}

/* ---- what is fixed ---- */

static int64_t keeping_of(const char *word)
{
    static const char *const words[] = {"none", "selective", "full", "every:2", "every:4"};
    for (int k = 0; k < TRI_KEEP_FITTING; k++)
        if (strcmp(word, words[k]) == 0)
            return k;
    return strncmp(word, "budget", 6) == 0 ? TRI_KEEP_FITTING : TRI_FREE;
}

static bool fix_word(tri_space_fixed *fixed, const char *key, const char *value)
{
    int64_t flag = strcmp(value, "true") == 0 ? 1 : strcmp(value, "false") == 0 ? 0 : TRI_FREE;
    size_t order = tri_search_order_find(value);
    int64_t schedule = tri_search_order_at(order) ? (int64_t)order : TRI_FREE;
    const struct {
        const char *key;
        int64_t *to, value;
    } words[] = {{"sp", &fixed->sp, flag},
                 {"keep_gathered", &fixed->keep_gathered, flag},
                 {"recompute", &fixed->keeping, keeping_of(value)},
                 {"schedule", &fixed->schedule, schedule}};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcmp(key, words[i].key) == 0 && words[i].value != TRI_FREE) {
            *words[i].to = words[i].value;
            return true;
        }
    return false;
}

bool tri_space_fix(tri_space_fixed *fixed, const char *assignment)
{
    const int64_t any = UINT32_MAX, byte = UINT8_MAX; /* of a member of tri_layout_choice */
    const struct {
        const char *key;
        int64_t *value, most;
    } numbers[] = {{"tp", &fixed->tp, any},
                   {"cp", &fixed->cp, any},
                   {"ep", &fixed->ep, any},
                   {"pp", &fixed->pp, any},
                   {"dp", &fixed->dp, any},
                   {"zero", &fixed->zero, 3},
                   {"shard_group", &fixed->shard_group, any},
                   {"microbatches", &fixed->microbatches, any},
                   {"chunks", &fixed->chunks, byte},
                   {"prefetch", &fixed->prefetch, byte},
                   {"etp", &fixed->whole_experts, 1}};
    const char *value = strchr(assignment, '=');
    if (strncmp(assignment, "layout.", 7) != 0 || !value)
        return false;
    char key[32];
    snprintf(key, sizeof key, "%.*s", (int)(value - assignment - 7), assignment + 7);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        char *end;
        if (strcmp(key, numbers[i].key) != 0)
            continue;
        int64_t number = strtoll(value + 1, &end, 10);
        if (*end || end == value + 1 || number < 0 || number > numbers[i].most)
            return false;
        *numbers[i].value = number;
        return true;
    }
    return fix_word(fixed, key, value + 1);
}

/* ---- the loops ---- */

typedef struct space_walk {
    const tri_space_facts *facts;
    const tri_space_fixed *fixed;
    tri_choices *out;
} space_walk;

static bool may(int64_t fixed, uint64_t value)
{
    return fixed == TRI_FREE || fixed == (int64_t)value;
}

static void put(space_walk *w, const tri_layout_choice *c)
{
    tri_choices *out = w->out;
    tri_layout_choice *items =
        tri_array_grow(out->items, out->count, &out->capacity, sizeof *items);
    out->failed |= !items;
    if (!items)
        return;
    out->items = items;
    items[out->count++] = *c;
}

static void each_precision(space_walk *w, tri_layout_choice c)
{
    const tri_space_facts *f = w->facts;
    for (int linear8 = f->only_linear8; linear8 <= (f->can_linear8 || f->only_linear8); linear8++) {
        c.linear8 = linear8;
        put(w, &c);
    }
}

static void each_keeping(space_walk *w, tri_layout_choice c)
{
    bool puts_off = c.pp > 1 && tri_search_order_at(c.schedule)->puts_off;
    for (uint8_t k = 0; k < TRI_NUM_KEEPINGS; k++) {
        c.keeping = k;
        if (puts_off && k >= TRI_KEEP_INPUTS && w->fixed->keeping == TRI_FREE)
            continue;
        if (w->fixed->keeping == k || (w->fixed->keeping == TRI_FREE && k != TRI_KEEP_FITTING))
            each_precision(w, c);
    }
}

/* ZeRO 3: whether gathered weights stay. */
static void each_gathering(space_walk *w, tri_layout_choice c)
{
    const uint8_t ahead = 2;
    uint8_t usual = c.zero == 3 ? ahead : 1;
    c.prefetch = w->fixed->prefetch == TRI_FREE ? usual : (uint8_t)w->fixed->prefetch;
    for (int keep = 0; keep <= (c.zero == 3); keep++) {
        c.keep_gathered = keep;
        if (may(w->fixed->keep_gathered, (uint64_t)keep))
            each_keeping(w, c);
    }
}

static void each_zero(space_walk *w, tri_layout_choice c)
{
    uint32_t all = c.dp * c.cp;
    uint32_t group = w->fixed->shard_group > 0 ? (uint32_t)w->fixed->shard_group /* of any size */
                                               : w->facts->node / c.tp;
    for (c.zero = 0; c.zero <= (all > 1 ? 3u : 0u); c.zero++) {
        if (!may(w->fixed->zero, c.zero))
            continue;
        c.shard_group = 0;
        if (may(w->fixed->shard_group, 0))
            each_gathering(w, c);
        bool grouped =
            c.zero > 0 && group > 1 && group < all && all % group == 0 && group % c.ep == 0;
        c.shard_group = group;
        if (grouped && w->fixed->shard_group != 0)
            each_gathering(w, c);
    }
}

/* An order with one chunk a rank, or with two of its own, has them without being told. */
static bool may_have(const space_walk *w, const tri_search_order *order, uint32_t chunks)
{
    uint32_t own = order->chunks > 0 ? order->chunks : 1;
    return order->many_chunks ? may(w->fixed->chunks, chunks)
                              : w->fixed->chunks == 0 || may(w->fixed->chunks, own);
}

static void each_order(space_walk *w, tri_layout_choice c)
{
    const tri_search_order *order;
    const uint32_t most = w->facts->layers / c.pp;
    const uint32_t fixed = w->fixed->chunks > 1 ? (uint32_t)w->fixed->chunks : 0;
    for (uint8_t s = 0; (order = tri_search_order_at(s)) != NULL; s++) {
        c.schedule = s;
        bool free = w->fixed->schedule == TRI_FREE;
        if (!may(w->fixed->schedule, s) || (free && (order->dominated || (c.pp == 1 && s > 0))))
            continue;
        uint32_t least = order->many_chunks ? fixed ? fixed : 2 : order->chunks;
        for (uint32_t v = least; v <= most && (v <= 8 || fixed); v *= 2) {
            c.chunks = order->many_chunks ? (uint8_t)v : 0;
            if ((!order->many_chunks || c.microbatches % c.pp == 0) && may_have(w, order, v))
                each_zero(w, c);
            if (!order->many_chunks || fixed || c.pp == 1)
                break;
        }
    }
}

/* How many rows a micro-batch has. */
static void each_rows(space_walk *w, tri_layout_choice c)
{
    int64_t own = (w->facts->batch + c.dp - 1) / c.dp;
    for (int64_t rows = 1; rows <= own; rows = rows * 2 <= own || rows == own ? rows * 2 : own) {
        int64_t microbatches = (own + rows - 1) / rows;
        int64_t padded = (int64_t)c.dp * rows * microbatches - w->facts->batch;
        c.rows = (uint32_t)((own + microbatches - 1) / microbatches); /* shared out evenly */
        c.microbatches = (uint32_t)microbatches;
        if (padded * PADDING > w->facts->batch || 2 * microbatches < c.pp ||
            !may(w->fixed->microbatches, (uint64_t)microbatches))
            continue;
        each_order(w, c);
    }
}

static void each_sp(space_walk *w, tri_layout_choice c)
{
    for (int sp = c.tp > 1; sp >= 0; sp--) {
        c.sp = sp;
        if (!may(w->fixed->sp, (uint64_t)sp))
            continue;
        for (int whole = 0; whole <= (sp && c.ep > 1); whole++) {
            c.whole_experts = whole;
            if (may(w->fixed->whole_experts, (uint64_t)whole))
                each_rows(w, c);
        }
    }
}

static void each_ep(space_walk *w, tri_layout_choice c)
{
    uint32_t most = w->facts->experts ? w->facts->experts : 1;
    for (c.ep = 1; c.ep <= most; c.ep++)
        if (may(w->fixed->ep, c.ep) && most % c.ep == 0 && c.dp * c.cp % c.ep == 0)
            each_sp(w, c);
}

static void each_cp(space_walk *w, tri_layout_choice c)
{
    const tri_space_facts *f = w->facts;
    uint32_t rest = f->devices / c.tp / c.pp;
    for (c.cp = 1; c.cp <= rest && (c.cp == 1 || f->can_cp); c.cp++) {
        bool long_enough = c.cp == 1 || f->seq_len / c.cp >= LEAST_TOKENS;
        if (rest % c.cp != 0 || !may(w->fixed->cp, c.cp) ||
            (!long_enough && w->fixed->cp == TRI_FREE))
            continue;
        c.dp = rest / c.cp;
        if (c.dp <= f->batch && may(w->fixed->dp, c.dp))
            each_ep(w, c);
    }
}

void tri_space_list(const tri_space_facts *facts, const tri_space_fixed *fixed,
                    tri_choices *choices)
{
    space_walk w = {.facts = facts, .fixed = fixed, .out = choices};
    tri_layout_choice c = {.prefetch = 1};
    *choices = (tri_choices){0};
    for (c.tp = 1; c.tp <= facts->devices && c.tp <= facts->heads; c.tp++) {
        bool near = c.tp <= 2 * facts->node || fixed->tp != TRI_FREE;
        if (facts->devices % c.tp != 0 || !may(fixed->tp, c.tp) || !near)
            continue;
        for (c.pp = 1; c.pp <= facts->devices / c.tp && c.pp <= facts->layers; c.pp++)
            if (facts->devices / c.tp % c.pp == 0 && may(fixed->pp, c.pp))
                each_cp(&w, c);
    }
}
