/* double_tree: two binary trees, each with half of the vector, in which the inner ranks of one are
 * leaves of the other. In a single binary tree the leaves, which are half of the ranks, never send;
 * here every rank sends about as much as it receives, and a vector streams through both trees at
 * full speed, in log2 N hops where a chain has N.
 *
 * The root stands apart and feeds both. The others, numbered 1 .. n from the root on, form the
 * first tree in order: number i has as its height the zeros at the end of i, so odd ones are
 * leaves. The second tree is the first mirrored (n even) or shifted by one (n odd), which makes odd
 * into even.
 *
 * Every edge has one of two colours, such that no rank gets, or gives, over two edges of one colour
 * (a rank has two edges to receive by, one in each tree, and two to send by): edges of colour c are
 * used in rounds of parity c. Think of a rank as two points, one that sends and one that receives:
 * no point has more than two edges, so they form paths and even circles, and colours alternate
 * along them. A reduction is the same backwards in time. */
#include "collective/rounds.h"

#include <stdlib.h>

enum { NONE = -1 };

/* Of one tree: each number's parent (0 is the root), the colour of the edge to it, and the round in
 * which the first piece comes over it. By numbers 0 .. n. */
typedef struct branch {
    int parent, colour, arrives;
} branch;

typedef struct trees {
    int n;
    branch *at[2]; /* [n + 1] */
    int last;      /* round in which the first pieces have arrived everywhere */
} trees;

/* The parent of i in the tree in order on 1 .. n; 0 for its top. */
static int in_order_parent(int i, int n)
{
    int low = i & -i, parent = i;
    do { /* the one above; where the tree is cut off at n, the next above that */
        parent = (parent & ~low) | low << 1;
        low <<= 1;
    } while (parent > n && low <= n);
    return parent > n ? 0 : parent;
}

static int to_second(int i, int n)
{
    return n % 2 == 0 ? n + 1 - i : i % n + 1;
}

static int from_second(int i, int n)
{
    return n % 2 == 0 ? n + 1 - i : (i + n - 2) % n + 1;
}

static void find_parents(trees *t)
{
    for (int i = 1; i <= t->n; i++) {
        t->at[0][i].parent = in_order_parent(i, t->n);
        int above = in_order_parent(to_second(i, t->n), t->n);
        t->at[1][i].parent = above ? from_second(above, t->n) : 0;
        t->at[0][i].colour = t->at[1][i].colour = NONE;
    }
}

/* The other edge of the same sender, as tree * (n + 1) + number; NONE when there is none. */
static int other_of_sender(const trees *t, int tree, int number)
{
    int sender = t->at[tree][number].parent;
    for (int k = 0; k < 2; k++)
        for (int i = 1; i <= t->n; i++)
            if (t->at[k][i].parent == sender && (k != tree || i != number))
                return k * (t->n + 1) + i;
    return NONE;
}

/* Along a path or circle: the edge to the same receiver in the other tree, the other edge of that
 * one's sender, and so on, until a coloured one or the end. */
static void colour_from(trees *t, int tree, int number, int colour)
{
    while (t->at[tree][number].colour == NONE) {
        t->at[tree][number].colour = colour;
        t->at[1 - tree][number].colour = 1 - colour;
        int next = other_of_sender(t, 1 - tree, number);
        if (next == NONE)
            return;
        tree = next / (t->n + 1);
        number = next % (t->n + 1);
    }
}

static void colour_edges(trees *t)
{
    /* Paths end at senders with one edge: begin there, for a walk goes in one direction only. */
    for (int tree = 0; tree < 2; tree++)
        for (int i = 1; i <= t->n; i++)
            if (other_of_sender(t, tree, i) == NONE)
                colour_from(t, tree, i, 0);
    for (int i = 1; i <= t->n; i++)
        colour_from(t, 0, i, 0);
}

/* When the first piece of a tree reaches a number: the next round of the edge's colour after the
 * parent has it. */
static int arrival(trees *t, int tree, int number)
{
    branch *b = &t->at[tree][number];
    if (b->arrives >= 0)
        return b->arrives;
    int before = b->parent ? arrival(t, tree, b->parent) : -1;
    b->arrives = before + 1 + ((before + 1) % 2 != b->colour);
    t->last = b->arrives > t->last ? b->arrives : t->last;
    return b->arrives;
}

static bool make_trees(trees *t, int n)
{
    *t = (trees){.n = n};
    for (int k = 0; k < 2; k++)
        t->at[k] = calloc((size_t)n + 1, sizeof *t->at[k]);
    if (!t->at[0] || !t->at[1])
        return false;
    find_parents(t);
    colour_edges(t);
    for (int k = 0; k < 2; k++)
        for (int i = 1; i <= n; i++)
            t->at[k][i].arrives = -1;
    for (int k = 0; k < 2; k++)
        for (int i = 1; i <= n; i++)
            arrival(t, k, i);
    return true;
}

static void free_trees(trees *t)
{
    free(t->at[0]);
    free(t->at[1]);
}

/* Pieces of each tree: twice the depth, so that filling the trees takes about as long as half of
 * the vector does to stream through. */
static int pieces_each(int size)
{
    return size > 2 ? 2 * tri_log2_ceil(size) : 1;
}

/* Away from the root, or towards it and combined. */
static void stream(tri_rounds_list *list, size_t first_round, int size, int root, bool away)
{
    trees t = {0};
    int num = pieces_each(size), last = 0;
    list->num_pieces = 2 * (uint32_t)num;
    if (size < 2)
        return;
    if (!make_trees(&t, size - 1)) {
        list->no_memory = true;
        free_trees(&t);
        return;
    }
    last = t.last + 2 * (num - 1);
    for (int k = 0; k < 2; k++)
        for (int i = 1; i <= t.n; i++)
            for (int p = 0; p < num; p++) {
                int child = tri_rank_mod(root + i, size);
                int parent = tri_rank_mod(root + t.at[k][i].parent, size);
                int round = t.at[k][i].arrives + 2 * p;
                tri_rounds_add(list, first_round + (size_t)(away ? round : last - round),
                               away ? parent : child, away ? child : parent,
                               (uint32_t)(k * num + (away ? p : num - 1 - p)), 1, !away);
            }
    free_trees(&t);
}

static void broadcast(tri_rounds_list *list, int size, int root)
{
    stream(list, 0, size, root, true);
}

static void reduce(tri_rounds_list *list, int size, int root)
{
    stream(list, 0, size, root, false);
}

static void all_reduce(tri_rounds_list *list, int size, int root)
{
    (void)root;
    stream(list, 0, size, 0, false);
    stream(list, list->next_round, size, 0, true);
}

static const tri_rounds_emit emit[TRI_NUM_COLLS] = {
    [TRI_COLL_BROADCAST] = broadcast,
    [TRI_COLL_REDUCE] = reduce,
    [TRI_COLL_ALL_REDUCE] = all_reduce,
};

/* How long the longest chain of transfers is depends on where the trees are cut off, so the rounds
 * themselves are walked: at prices of one, for each part of the cost in turn. */
static tri_coll_cost cost(tri_coll coll, const tri_coll_shape *shape, double bytes)
{
    static const tri_coll_prices only[] = {{1, 0, 0}, {0, 1, 0}, {0, 0, 1}};
    tri_rounds rounds;
    double part[3];
    if (!tri_algorithm_supports(&tri_algorithm_double_tree, coll, shape) ||
        tri_algorithm_rounds(&tri_algorithm_double_tree, coll, shape, 0, &rounds, NULL) != TR_OK)
        return (tri_coll_cost){0};
    for (int i = 0; i < 3; i++)
        part[i] = tri_rounds_time(&rounds, shape->size, bytes, false, &only[i], NULL, 0);
    tri_rounds_free(&rounds);
    return tri_cost_of(part[0], part[1], part[2]);
}

const tri_algorithm tri_algorithm_double_tree = {
    .name = "double_tree",
    .help = "large vectors from or to a root on many ranks: full speed in few hops",
    .emit = emit,
    .cost = cost,
};
