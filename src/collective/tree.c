/* tree: a binomial tree, few rounds for small vectors.
 *
 * The ranks are halved again and again: the root of a run of ranks sends to the root of the other
 * half, and both go on within their halves. On four ranks, from root 0:
 *
 *     round 1    0>2
 *     round 2    0>1  2>3
 *
 * For a power of two this is the binomial tree. Halving keeps each subtree a run of consecutive
 * ranks whatever the root, so that gather and scatter move one message of consecutive blocks in
 * each transfer; ranks renumbered from the root, the usual way, would wrap around in the middle.
 *
 * When the number is odd the larger half is the one with the root in it. Then the root handles
 * floor(n/2) blocks in a round and goes on with ceil(n/2): N-1 in all over ceil(log2 N) rounds, and
 * no other path is longer, for every N and every root. */
#include "collective/rounds.h"

typedef enum direction {
    OUT, /* from the root, level 0 first */
    IN   /* to the root, level 0 last */
} direction;

typedef struct tree_pass {
    tri_rounds_list *list;
    direction direction;
    size_t first_round;
    int num_levels;
    bool combine;
    bool own_blocks; /* a transfer moves the blocks of the subtree, not the whole vector */
} tree_pass;

/* Over the ranks begin .. begin+size-1 with a root among them. Recursion is log2(size) deep. */
static void halve(const tree_pass *pass, int level, int begin, int size, int root)
{
    if (size < 2)
        return;
    int low = root - begin < (size + 1) / 2 ? (size + 1) / 2 : size / 2;
    bool root_is_low = root < begin + low;
    int other_begin = root_is_low ? begin + low : begin;
    int other_size = root_is_low ? size - low : low;
    int other = other_begin; /* the root of the other half */

    bool out = pass->direction == OUT;
    size_t round = pass->first_round + (size_t)(out ? level : pass->num_levels - 1 - level);
    uint32_t first_piece = pass->own_blocks ? (uint32_t)other_begin : 0;
    uint32_t num_pieces = pass->own_blocks ? (uint32_t)other_size : pass->list->num_pieces;
    tri_rounds_add(pass->list, round, out ? root : other, out ? other : root, first_piece,
                   num_pieces, pass->combine);

    halve(pass, level + 1, root_is_low ? begin : begin + low, size - other_size, root);
    halve(pass, level + 1, other_begin, other_size, other);
}

static void whole_out(tri_rounds_list *list, size_t first_round, int size, int root)
{
    tree_pass pass = {list, OUT, first_round, tri_log2_ceil(size), false, false};
    halve(&pass, 0, 0, size, root);
}

static void whole_in(tri_rounds_list *list, int size, int root, bool combine)
{
    tree_pass pass = {list, IN, 0, tri_log2_ceil(size), combine, false};
    halve(&pass, 0, 0, size, root);
}

static void blocks_out(tri_rounds_list *list, size_t first_round, int size, int root)
{
    tree_pass pass = {list, OUT, first_round, tri_log2_ceil(size), false, true};
    halve(&pass, 0, 0, size, root);
}

static void blocks_in(tri_rounds_list *list, int size, int root)
{
    tree_pass pass = {list, IN, 0, tri_log2_ceil(size), false, true};
    halve(&pass, 0, 0, size, root);
}

static void broadcast(tri_rounds_list *list, int size, int root)
{
    list->num_pieces = 1;
    whole_out(list, 0, size, root);
}

static void reduce(tri_rounds_list *list, int size, int root)
{
    list->num_pieces = 1;
    whole_in(list, size, root, true);
}

static void all_reduce(tri_rounds_list *list, int size, int root)
{
    (void)root;
    list->num_pieces = 1;
    whole_in(list, size, 0, true);
    whole_out(list, (size_t)tri_log2_ceil(size), size, 0);
}

static void gather(tri_rounds_list *list, int size, int root)
{
    list->num_pieces = (uint32_t)size;
    blocks_in(list, size, root);
}

static void scatter(tri_rounds_list *list, int size, int root)
{
    list->num_pieces = (uint32_t)size;
    blocks_out(list, 0, size, root);
}

static void all_gather(tri_rounds_list *list, int size, int root)
{
    (void)root;
    list->num_pieces = (uint32_t)size;
    blocks_in(list, size, 0);
    whole_out(list, (size_t)tri_log2_ceil(size), size, 0);
}

static void reduce_scatter(tri_rounds_list *list, int size, int root)
{
    (void)root;
    list->num_pieces = (uint32_t)size;
    whole_in(list, size, 0, true);
    blocks_out(list, (size_t)tri_log2_ceil(size), size, 0);
}

static void barrier(tri_rounds_list *list, int size, int root)
{
    (void)root;
    whole_in(list, size, 0, false); /* of no pieces: the message is all there is */
    whole_out(list, (size_t)tri_log2_ceil(size), size, 0);
}

/* No all_to_all: through a tree everything would pass the root, and forwarded pieces have no place
 * in the vectors on the way. */
static const tri_rounds_emit emit[TRI_NUM_COLLS] = {
    [TRI_COLL_BARRIER] = barrier,       [TRI_COLL_BROADCAST] = broadcast,
    [TRI_COLL_REDUCE] = reduce,         [TRI_COLL_ALL_REDUCE] = all_reduce,
    [TRI_COLL_GATHER] = gather,         [TRI_COLL_SCATTER] = scatter,
    [TRI_COLL_ALL_GATHER] = all_gather, [TRI_COLL_REDUCE_SCATTER] = reduce_scatter,
};

/* A pass with the whole vector costs S on each of ceil(log2 N) levels; one with the subtree's
 * blocks S(N-1)/N on all levels together. */
static tri_coll_cost cost(tri_coll coll, const tri_coll_shape *shape, double bytes)
{
    int size = shape->size;
    double depth = tri_log2_ceil(size), whole = depth * bytes, blocks = bytes * (size - 1) / size;
    switch (coll) {
    case TRI_COLL_BARRIER:
        return (tri_coll_cost){.alpha_count = 2 * depth};
    case TRI_COLL_BROADCAST:
        return tri_cost_of(depth, whole, 0);
    case TRI_COLL_REDUCE:
        return tri_cost_of(depth, whole, whole);
    case TRI_COLL_ALL_REDUCE:
        return tri_cost_of(2 * depth, 2 * whole, whole);
    case TRI_COLL_GATHER:
    case TRI_COLL_SCATTER:
        return tri_cost_of(depth, blocks, 0);
    case TRI_COLL_ALL_GATHER:
        return tri_cost_of(2 * depth, blocks + whole, 0);
    case TRI_COLL_REDUCE_SCATTER:
        return tri_cost_of(2 * depth, whole + blocks, whole);
    default:
        return (tri_coll_cost){0};
    }
}

const tri_algorithm tri_algorithm_tree = {
    .name = "tree",
    .help = "small vectors on many ranks: log2(N) rounds, each with the whole vector",
    .emit = emit,
    .cost = cost,
};
