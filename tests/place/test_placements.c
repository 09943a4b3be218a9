/* Random placements of random shapes on random grids of up to 16 ranks: every conversion that the
 * pass inserts, run by ranks that are threads, leaves each of them with its piece of the whole
 * tensor, element for element, at every step of the way; the plan can be carried out and sends no
 * more than to sum, gather and slice does; and `trireme place` says the same.
 *
 *     TRIREME_RANDOM_SEED=7 TRIREME_RANDOM_CASES=20000 build/tests/test_placements
 *     TRIREME_RANDOM_SEED=7 TRIREME_RANDOM_CASE=123 build/tests/test_placements    # that one
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "graph/emit.h"
#include "place/calc/calc.h"
#include "place/placer.h"
#include "program/match.h"
#include "program/messages.h"
#include "train/ranks.h"

enum { CASES = 10000, RUN_CASES = 600, MOST_RANKS = 16, MOST_ELEMENTS = 700, MOST_FACTORS = 4 };

typedef struct placement_case {
    uint64_t seed, number, state;
    tri_grid grid; /* of rank 0 */
    int num_ranks;
    bool mixed; /* factors of one family are entries together in one place and apart in another */
    tri_shape whole;
    tri_placement from, to;
    tri_placement also; /* half of the cases are converted to this first */
    /* Terms of the whole tensor, by the place on the factors that `from` is partial over. */
    int8_t term[MOST_RANKS][MOST_ELEMENTS];
} placement_case;

/* ---- random cases ---- */

/* splitmix64 */
static uint64_t next(placement_case *c)
{
    uint64_t z = c->state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static int below(placement_case *c, int n)
{
    return (int)(next(c) % (uint64_t)n);
}

static bool one_in(placement_case *c, int n)
{
    return below(c, n) == 0;
}

static void make_grid(placement_case *c)
{
    tri_grid *grid = &c->grid;
    int wanted = 1 + below(c, MOST_FACTORS);
    c->num_ranks = 1;
    grid->num_axes = TRI_NUM_AXES;
    for (int f = 0; f < wanted; f++) {
        int size = one_in(c, 12) ? 1 : 2 + below(c, 4);
        if (size * c->num_ranks > MOST_RANKS)
            continue;
        int number = grid->num_factors++;
        bool joins = number > 0 && one_in(c, 3);
        grid->factor[number] =
            (tri_factor){.size = size,
                         .stride = c->num_ranks,
                         .family = joins ? grid->factor[number - 1].family : (uint8_t)number};
        /* Rows of the axes of a mesh: one for each factor. */
        snprintf(grid->axis[number].name, TRI_GRID_NAME, "%c", 'w' + number);
        grid->axis[number].factors = tri_factor_bit(number);
        c->num_ranks *= size;
    }
    c->mixed = one_in(c, 4);
}

static void make_shape(placement_case *c)
{
    static const tri_dim_name names[] = {TRI_DIM_B, TRI_DIM_T, TRI_DIM_H, TRI_DIM_F};
    int first = below(c, 4);
    do {
        c->whole.rank = 1 + below(c, 4);
        for (int d = 0; d < c->whole.rank; d++) {
            tri_dim_name name = names[(first + d) % 4];
            c->grid.unit[name] = one_in(c, 6) ? 2 + below(c, 2) : 0;
            int64_t unit = c->grid.unit[name] ? c->grid.unit[name] : 1;
            c->whole.dim[d] = (tri_dim){name, unit * (1 + below(c, unit > 1 ? 5 : 11))};
        }
    } while (tri_shape_count(&c->whole) > MOST_ELEMENTS);
}

/* What lies in one way over all: a family, or in cases that mix them a single factor. */
static tri_factor_set atom_of(const placement_case *c, int factor)
{
    tri_factor_set set = 0;
    for (int f = 0; f < c->grid.num_factors; f++)
        if (f == factor || (!c->mixed && c->grid.factor[f].family == c->grid.factor[factor].family))
            set |= tri_factor_bit(f);
    return set;
}

/* Puts an atom at a random place of a list, in cases that mix them into an entry of its family. */
static void put_entry(placement_case *c, tri_entries *entries, tri_factor_set atom)
{
    uint8_t family = c->grid.factor[__builtin_ctz(atom)].family;
    for (int i = 0; i < entries->num && c->mixed; i++)
        if (c->grid.factor[__builtin_ctz(entries->set[i])].family == family && one_in(c, 2)) {
            entries->set[i] |= atom;
            return;
        }
    int at = one_in(c, 3) ? below(c, entries->num + 1) : entries->num;
    for (int i = entries->num++; i > at; i--)
        entries->set[i] = entries->set[i - 1];
    entries->set[at] = atom;
}

static void take_out(tri_placement *at, tri_factor_set atom)
{
    at->partial &= (tri_factor_set)~atom;
    for (int d = 0; d < TRI_MAX_RANK; d++) {
        tri_entries old = at->dim[d];
        at->dim[d] = (tri_entries){0};
        for (int i = 0; i < old.num; i++)
            if (old.set[i] & ~atom)
                at->dim[d].set[at->dim[d].num++] = (tri_factor_set)(old.set[i] & ~atom);
    }
}

static void put_atom(placement_case *c, tri_placement *at, tri_factor_set atom,
                     tri_factor_set may_be_partial)
{
    int kind = below(c, 8);
    if (kind < 2 && (atom & ~may_be_partial) == 0)
        at->partial |= atom;
    else if (kind < 7)
        put_entry(c, &at->dim[below(c, c->whole.rank)], atom);
}

static tri_placement random_placement(placement_case *c, tri_factor_set may_be_partial)
{
    tri_placement at = {0};
    tri_factor_set done = 0;
    for (int k = 0; k < 4 * MOST_FACTORS; k++) { /* in any order */
        int f = k < 3 * MOST_FACTORS ? below(c, c->grid.num_factors) : k % c->grid.num_factors;
        tri_factor_set atom = atom_of(c, f);
        if (!(done & atom))
            put_atom(c, &at, atom, may_be_partial);
        done |= atom;
    }
    return at;
}

static void make_case(placement_case *c, uint64_t seed, uint64_t number)
{
    memset(c, 0, sizeof *c);
    c->seed = seed;
    c->number = number;
    c->state = seed * 0x100000001b3u + number;
    while (c->grid.num_factors == 0)
        make_grid(c);
    make_shape(c);
    c->from = random_placement(c, (tri_factor_set)~0);
    c->to = one_in(c, 2) ? c->from : random_placement(c, c->from.partial);
    bool twice = one_in(c, 2);
    while (tri_placement_equal(&c->from, &c->to) || twice) {
        tri_factor_set atom = atom_of(c, below(c, c->grid.num_factors));
        take_out(&c->to, atom);
        put_atom(c, &c->to, atom, c->from.partial);
        twice = false;
    }
    c->also = random_placement(c, c->to.partial);
    for (int p = 0; p < tri_grid_size(&c->grid, c->from.partial); p++)
        for (int64_t i = 0; i < tri_shape_count(&c->whole); i++)
            c->term[p][i] = (int8_t)(below(c, 15) - 7);
}

static tri_grid grid_of(const placement_case *c, int rank)
{
    tri_grid grid = c->grid;
    for (int f = 0; f < grid.num_factors; f++)
        grid.factor[f].coordinate = rank / grid.factor[f].stride % grid.factor[f].size;
    return grid;
}

/* The case in words: what to run again, the grid, and the two placements. */
static const char *text_of(const placement_case *c)
{
    static _Thread_local char text[1000];
    char from[200], to[200];
    int used = snprintf(text, sizeof text, "TRIREME_RANDOM_SEED=%llu TRIREME_RANDOM_CASE=%llu:",
                        (unsigned long long)c->seed, (unsigned long long)c->number);
    for (int f = 0; f < c->grid.num_factors; f++)
        used += snprintf(text + used, sizeof text - (size_t)used, " %s:%d(%d)",
                         c->grid.axis[f].name, c->grid.factor[f].size, c->grid.factor[f].family);
    for (int d = 0; d < c->whole.rank; d++)
        if (c->grid.unit[c->whole.dim[d].name])
            used += snprintf(text + used, sizeof text - (size_t)used, " %s by %d",
                             tri_dim_letter(c->whole.dim[d].name),
                             (int)c->grid.unit[c->whole.dim[d].name]);
    snprintf(text + used, sizeof text - (size_t)used, ", %s -> %s",
             tri_placement_text(&c->grid, &c->from, &c->whole, from, sizeof from),
             tri_placement_text(&c->grid, &c->to, &c->whole, to, sizeof to));
    return text;
}

static uint64_t number_from(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);
    char *end;
    errno = 0;
    uint64_t number = text ? strtoull(text, &end, 10) : otherwise;
    if (text && (errno || *end || end == text))
        fail_msg("%s=%s is not a number", name, text);
    return number;
}

/* The cases of this run; the caller frees them. */
static placement_case *make_cases(uint64_t usual, size_t *num)
{
    uint64_t seed = number_from("TRIREME_RANDOM_SEED", 1);
    uint64_t only = number_from("TRIREME_RANDOM_CASE", UINT64_MAX);
    *num = only == UINT64_MAX ? number_from("TRIREME_RANDOM_CASES", usual) : 1;
    placement_case *cases = malloc((*num + 1) * sizeof *cases);
    assert_non_null(cases);
    for (size_t i = 0; i < *num; i++)
        make_case(&cases[i], seed, only == UINT64_MAX ? i : only);
    return cases;
}

/* ---- what a rank is to have ---- */

/* What a rank has of the tensor at a placement on the way. Returns how many elements. */
static int64_t expected_at(const placement_case *c, int rank, const tri_placement *at, float *out)
{
    tri_grid grid = grid_of(c, rank);
    tri_shape piece = tri_placement_shape(&grid, at, &c->whole);
    int64_t count = tri_shape_count(&piece), begin[TRI_MAX_RANK];
    for (int d = 0; d < piece.rank; d++)
        tri_placement_piece(&grid, &at->dim[d], c->whole.dim[d], NULL, &begin[d]);
    for (int64_t i = 0; i < count; i++) {
        int64_t rest = i, place = 0, stride = 1;
        for (int d = piece.rank - 1; d >= 0; d--) {
            place += (begin[d] + rest % piece.dim[d].size) * stride;
            rest /= piece.dim[d].size;
            stride *= c->whole.dim[d].size;
        }
        out[i] = 0;
        for (int other = 0; other < c->num_ranks; other++) {
            /* Once each: those that differ only along what has been summed. */
            tri_grid there = grid_of(c, other);
            bool counts = true;
            for (int f = 0; f < grid.num_factors; f++)
                counts &= (c->from.partial & ~at->partial) >> f & 1 ||
                          there.factor[f].coordinate == grid.factor[f].coordinate;
            if (counts)
                out[i] += c->term[tri_grid_place(&there, c->from.partial)][place];
        }
    }
    return count;
}

/* ---- the plan ---- */

/* Whether a list is another with a run of entries behind it. */
static bool extends(const tri_entries *longer, const tri_entries *shorter, int by)
{
    return longer->num == shorter->num + by &&
           memcmp(longer->set, shorter->set, shorter->num * sizeof *shorter->set) == 0;
}

/* Only ends of lists change, in one dim, or from one to another as they are. */
static bool can_be_done(const tri_move *m, int rank)
{
    const tri_placement *a = &m->before, *b = &m->after;
    bool gathers = m->kind == TRI_MOVE_ALL_GATHER || m->kind == TRI_MOVE_ALL_TO_ALL;
    bool cuts = m->kind != TRI_MOVE_ALL_GATHER && m->kind != TRI_MOVE_ALL_REDUCE;
    bool sums = m->kind == TRI_MOVE_ALL_REDUCE || m->kind == TRI_MOVE_REDUCE_SCATTER;
    bool right = gathers == (m->from_dim >= 0) && cuts == (m->to_dim >= 0) && m->over != 0;
    tri_factor_set lost = 0, gained = 0;
    for (int d = 0; d < rank; d++) {
        const tri_entries *x = &a->dim[d], *y = &b->dim[d];
        if (d == m->from_dim)
            right &= extends(x, y, m->num_entries);
        else if (d == m->to_dim)
            right &= extends(y, x, m->num_entries);
        else
            right &= extends(x, y, 0);
        for (int i = 0; i < m->num_entries && right; i++) {
            lost |= d == m->from_dim ? x->set[y->num + i] : 0;
            gained |= d == m->to_dim ? y->set[x->num + i] : 0;
        }
    }
    for (int i = 0; i < m->num_entries && right && gathers && cuts; i++)
        right &= a->dim[m->from_dim].set[b->dim[m->from_dim].num + i] ==
                 b->dim[m->to_dim].set[a->dim[m->to_dim].num + i];
    tri_factor_set summed = a->partial & ~b->partial;
    right &= (!gathers || lost == m->over) && (!cuts || gained == m->over);
    right &= summed == (sums ? m->over : 0) && (b->partial & ~a->partial) == 0;
    /* What is cut off without a message was whole. */
    return right && (m->kind != TRI_MOVE_SLICE || !((tri_placement_cut(a) | a->partial) & m->over));
}

static double elements_of(const placement_case *c, int rank, const tri_placement *at)
{
    tri_grid grid = grid_of(c, rank);
    tri_shape shape = tri_placement_shape(&grid, at, &c->whole);
    return (double)tri_shape_count(&shape);
}

/* Elements that all ranks send for one move. */
static double traffic(const placement_case *c, const tri_move *m)
{
    double sum = 0, ranks = tri_grid_size(&c->grid, m->over);
    for (int r = 0; r < c->num_ranks; r++) {
        double before = elements_of(c, r, &m->before), after = elements_of(c, r, &m->after);
        switch (m->kind) {
        case TRI_MOVE_SLICE:
            break;
        case TRI_MOVE_REDUCE_SCATTER: /* all but its own piece goes on */
            sum += before - after;
            break;
        case TRI_MOVE_ALL_REDUCE:
            sum += 2 * before * (ranks - 1) / ranks;
            break;
        case TRI_MOVE_ALL_TO_ALL: { /* its own block stays */
            tri_placement both = m->before;
            both.dim[m->to_dim] = m->after.dim[m->to_dim];
            sum += before - elements_of(c, r, &both);
            break;
        }
        case TRI_MOVE_ALL_GATHER:
            sum += after - before;
        }
    }
    return sum;
}

/* The simplest way: complete all sums, gather whatever differs, cut. */
static double simple_traffic(const placement_case *c)
{
    tri_move m = {.kind = TRI_MOVE_ALL_REDUCE,
                  .over = c->from.partial & ~c->to.partial,
                  .before = c->from,
                  .after = c->from};
    double sum = m.over ? traffic(c, &m) : 0;
    m.kind = TRI_MOVE_ALL_GATHER;
    for (int d = 0; d < c->whole.rank; d++) {
        const tri_entries *a = &c->from.dim[d], *b = &c->to.dim[d];
        int same = 0;
        while (same < a->num && same < b->num && a->set[same] == b->set[same])
            same++;
        m.before = m.after;
        m.after.dim[d].num = (uint8_t)same;
        sum += traffic(c, &m);
    }
    return sum;
}

/* What the cases are about, so that none of it is missing unseen. */
typedef struct case_counts {
    int moves[TRI_MOVE_ALL_GATHER + 1];
    int two_factors, three_factors; /* cases with a dim that is cut over so many */
    int joint;                      /* some of them in one entry */
    int empty;                      /* some rank has nothing */
    int ranks[MOST_RANKS + 1];
} case_counts;

static void count_case(const placement_case *c, const tri_moves *plan, case_counts *counts)
{
    bool two = false, three = false, joint = false, empty = false;
    for (int i = 0; i < plan->num; i++)
        counts->moves[plan->move[i].kind]++;
    for (int d = 0; d < 2 * c->whole.rank; d++) {
        const tri_entries *list = d % 2 ? &c->from.dim[d / 2] : &c->to.dim[d / 2];
        int factors = __builtin_popcount(tri_entries_set(list));
        two |= factors == 2;
        three |= factors >= 3;
        joint |= factors > list->num;
    }
    for (int r = 0; r < c->num_ranks; r++)
        empty |= elements_of(c, r, &c->from) == 0 || elements_of(c, r, &c->to) == 0;
    counts->two_factors += two;
    counts->three_factors += three;
    counts->joint += joint;
    counts->empty += empty;
    counts->ranks[c->num_ranks]++;
}

static void check_plan(const placement_case *c, case_counts *counts)
{
    tr_error err = {0};
    tri_moves plan;
    double sum = 0;
    const tri_placement *now = &c->from;
    if (tri_plan_moves(c->whole.rank, &c->from, &c->to, &plan, &err) != TR_OK)
        fail_msg("%s\n  %s", text_of(c), err.message);
    for (int i = 0; i < plan.num; i++) {
        const tri_move *m = &plan.move[i];
        if (!tri_placement_equal(&m->before, now))
            fail_msg("%s\n  move %d begins elsewhere", text_of(c), i);
        if (!can_be_done(m, c->whole.rank))
            fail_msg("%s\n  move %d (kind %d) cannot be carried out", text_of(c), i, m->kind);
        sum += traffic(c, m);
        now = &m->after;
    }
    if (!tri_placement_equal(now, &c->to))
        fail_msg("%s\n  the plan ends elsewhere", text_of(c));
    double simple = simple_traffic(c);
    if (sum > simple * (1 + 1e-9))
        fail_msg("%s\n  the plan sends %g elements, %g would do", text_of(c), sum, simple);
    count_case(c, &plan, counts);
}

/* Pieces of a dim, in the order of places, lie one after the other and are all of it. */
static void check_pieces(const placement_case *c, const tri_placement *at)
{
    for (int d = 0; d < c->whole.rank; d++) {
        tri_cut all = tri_placement_last(&c->grid, &at->dim[d], c->whole.dim[d], d, at->dim[d].num);
        int64_t end = 0;
        for (int part = 0; part < all.parts; part++) {
            int32_t coordinate[TRI_MAX_FACTORS] = {0}, rest = part;
            for (int i = at->dim[d].num - 1; i >= 0; i--)
                for (int f = 0; f < c->grid.num_factors; f++)
                    if (at->dim[d].set[i] >> f & 1) {
                        coordinate[f] = rest % c->grid.factor[f].size;
                        rest /= c->grid.factor[f].size;
                    }
            int64_t begin, size = tri_placement_piece(&c->grid, &at->dim[d], c->whole.dim[d],
                                                      coordinate, &begin);
            if (begin != end || size < 0 || begin != tri_cut_begin(&all, part))
                fail_msg("%s\n  piece %d of dim %d begins at %d", text_of(c), part, d, (int)begin);
            end += size;
        }
        if (end != c->whole.dim[d].size)
            fail_msg("%s\n  the pieces of dim %d are not all of it", text_of(c), d);
    }
}

static void plans_can_be_carried_out(void **state)
{
    (void)state;
    size_t num;
    case_counts counts = {0};
    placement_case *cases = make_cases(CASES, &num);
    for (size_t i = 0; i < num; i++) {
        check_plan(&cases[i], &counts);
        check_pieces(&cases[i], &cases[i].from);
        check_pieces(&cases[i], &cases[i].to);
    }
    free(cases);
    print_message(
        "%d cases: %d slices, %d reduce-scatters, %d all-reduces, %d all-to-alls, %d "
        "all-gathers; a dim over two factors in %d, over more in %d, jointly in %d; empty "
        "pieces in %d\n",
        (int)num, counts.moves[0], counts.moves[1], counts.moves[2], counts.moves[3],
        counts.moves[4], counts.two_factors, counts.three_factors, counts.joint, counts.empty);
    if (num < CASES)
        return;
    for (int kind = 0; kind <= TRI_MOVE_ALL_GATHER; kind++)
        assert_true(counts.moves[kind] * 20 > (int)num);
    assert_true(counts.two_factors * 20 > (int)num && counts.three_factors * 20 > (int)num);
    assert_true(counts.joint * 20 > (int)num && counts.empty * 20 > (int)num);
    for (int ranks = 1; ranks <= MOST_RANKS; ranks++) /* but for primes that no factor has */
        assert_true(counts.ranks[ranks] > 0 || ranks == 7 || ranks == 11 || ranks == 13 ||
                    ranks == 14);
}

/* ---- the pass ---- */

/* What the pass makes of a case for one rank: an input at `from`, and its value at every step. */
typedef struct conversion {
    tri_program program;
    tri_id input;
    int num;                         /* of moves */
    tri_id value[TRI_MAX_MOVES];     /* what each makes, the last one first */
    tri_placement at[TRI_MAX_MOVES]; /* where that lies */
} conversion;

/* Puts the input where it is to be, and notes what is made on the way. */
static tr_status convert(const placement_case *c, bool also, tri_placer *placer, conversion *made,
                         tr_error *err)
{
    tri_id out;
    made->input = tri_graph_input(placer->graph, "x", TRI_F32, c->whole, true);
    TRI_TRY(tri_placer_note_values(placer, err));
    tri_placer_put(placer, made->input, &c->from);
    if (also)
        TRI_TRY(tri_placer_convert(placer, made->input, &c->also, &out, err));
    TRI_TRY(tri_placer_convert(placer, made->input, &c->to, &out, err));
    if (!tri_placement_equal(&placer->values[out].at, &c->to))
        return tri_fail(err, TR_ERROR_INTERNAL, "the conversion ends elsewhere");
    for (tri_id v = placer->values[made->input].moved; v != TRI_NONE; v = placer->values[v].next) {
        made->value[made->num] = v;
        made->at[made->num++] = placer->values[v].at;
        if (also || v == out)
            tri_mark_output(placer->graph, v);
    }
    return tri_graph_status(placer->graph, err);
}

/* also: to another place first, and whatever is on the way is an output too; otherwise only what it
 * ends in. */
static tr_status make_conversion(const placement_case *c, int rank, bool also, conversion *made,
                                 tr_error *err)
{
    tri_graph graph;
    tri_param_table params;
    tri_placed_params placed;
    const tri_action forward = {.kind = TRI_ACTION_F};
    const tri_build_config wanted = {.schedule = &forward, .num_actions = 1, .num_microbatches = 1};
    const tri_layout layout = {.grid = grid_of(c, rank)};
    *made = (conversion){0};
    tri_param_table_init(&params);
    TRI_TRY(tri_placed_params_init(&placed, &params, err));
    tr_status status = tri_graph_init(&graph, &params, err);
    graph.grid = layout.grid;
    tri_placer placer = {
        .graph = &graph, .layout = &layout, .placed = &placed, .zero = &placed.zero, .chunk = -1};
    if (status == TR_OK)
        status = convert(c, also, &placer, made, err);
    if (status == TR_OK)
        status = tri_program_build(&graph, &placed, &wanted, &made->program, err);
    if (status == TR_OK && (status = tri_program_check(&made->program, err)) != TR_OK)
        tri_program_fini(&made->program);
    free(placer.values);
    tri_graph_fini(&graph);
    tri_placed_params_fini(&placed);
    tri_param_table_fini(&params);
    return status;
}

/* ---- trireme place ---- */

static tri_factor_set bits_of(const placement_case *c, unsigned axes, const int *axis_of)
{
    tri_factor_set set = 0;
    for (int f = 0; f < c->grid.num_factors; f++)
        if (axes >> axis_of[f] & 1)
            set |= tri_factor_bit(f);
    return set;
}

/* The axes of the calculator: what lies in one way. */
static void make_axes(const placement_case *c, tri_calc *calc, int *axis_of)
{
    for (int f = 0; f < c->grid.num_factors; f++) {
        tri_factor_set atom = atom_of(c, f);
        axis_of[f] = calc->num_axes;
        if (__builtin_ctz(atom) != f) {
            axis_of[f] = axis_of[__builtin_ctz(atom)];
            continue;
        }
        tri_calc_axis *axis = &calc->axes[calc->num_axes++];
        snprintf(axis->name, sizeof axis->name, "%c", 'w' + f);
        axis->size = tri_grid_size(&c->grid, atom);
    }
}

static tri_calc_array array_of(const placement_case *c, const tri_placement *at, const int *axis_of)
{
    tri_calc_array array = {.name = "A", .rank = c->whole.rank};
    for (int d = 0; d < c->whole.rank; d++) {
        array.dims[d] = (tri_calc_dim){.letter = d, .num_cuts = at->dim[d].num};
        for (int i = 0; i < at->dim[d].num; i++)
            array.dims[d].cuts[i] = (uint8_t)axis_of[__builtin_ctz(at->dim[d].set[i])];
    }
    for (int f = 0; f < c->grid.num_factors; f++)
        if (at->partial >> f & 1)
            array.terms |= 1u << axis_of[f];
    return array;
}

/* The factors along which the members of a group differ. */
static tri_factor_set factors_of(const placement_case *c, const tri_rank_group *group)
{
    tri_factor_set set = 0;
    tri_grid own = grid_of(c, tri_rank_group_member(group, 0));
    for (uint32_t i = 1; i < group->size; i++) {
        tri_grid other = grid_of(c, tri_rank_group_member(group, i));
        for (int f = 0; f < own.num_factors; f++)
            if (own.factor[f].coordinate != other.factor[f].coordinate)
                set |= tri_factor_bit(f);
    }
    return set;
}

static bool same_move(const placement_case *c, const conversion *made, const tri_instr *instr,
                      const tri_calc_move *move, const int *axis_of)
{
    static const tri_message_kind kinds[] = {[TRI_MOVE_REDUCE_SCATTER] = TRI_MESSAGE_REDUCE_SCATTER,
                                             [TRI_MOVE_ALL_REDUCE] = TRI_MESSAGE_ALL_REDUCE,
                                             [TRI_MOVE_ALL_TO_ALL] = TRI_MESSAGE_ALL_TO_ALL,
                                             [TRI_MOVE_ALL_GATHER] = TRI_MESSAGE_ALL_GATHER};
    if (instr->op == TRI_OP_SLICE)
        return move->kind == TRI_MOVE_SLICE;
    if (move->kind == TRI_MOVE_SLICE)
        return false;
    const tri_program *program = &made->program;
    const tri_message *message = &program->messages[instr->message];
    tri_factor_set along = 0; /* factors of more than one rank */
    for (int f = 0; f < c->grid.num_factors; f++)
        if (c->grid.factor[f].size > 1)
            along |= bits_of(c, move->axes, axis_of) & tri_factor_bit(f);
    bool units = false;
    for (int d = 0; d < c->whole.rank; d++)
        units |= c->grid.unit[c->whole.dim[d].name] > 1;
    double vector;
    uint64_t bytes =
        message->kind == TRI_MESSAGE_ALL_TO_ALL ? message->send.bytes : tri_message_moved(message);
    return message->kind == kinds[move->kind] &&
           factors_of(c, &program->groups[message->group]) == along &&
           tri_amount_known(&move->vector, &vector) && (units || vector == (double)bytes);
}

/* Rank 0 has the largest piece of every dim, with which the calculator counts. */
static void check_calculator(const placement_case *c)
{
    tr_error err = {0};
    tri_calc calc;
    static tri_calc_moves moves;
    static conversion made;
    int axis_of[TRI_MAX_FACTORS], at = 0;
    assert_int_equal(tri_calc_init(&calc, &err), TR_OK);
    calc.element_bytes = 4;
    make_axes(c, &calc, axis_of);
    calc.num_letters = c->whole.rank;
    for (int d = 0; d < c->whole.rank; d++)
        calc.letters[d].size = c->whole.dim[d].size;
    tri_calc_array from = array_of(c, &c->from, axis_of), to = array_of(c, &c->to, axis_of);
    moves.num = 0;
    if (tri_calc_move_to(&calc, &from, &to, &moves, &err) != TR_OK ||
        make_conversion(c, 0, false, &made, &err) != TR_OK)
        fail_msg("%s\n  %s", text_of(c), err.message);
    for (size_t i = 0; i < made.program.num_instrs; i++) {
        const tri_instr *instr = &made.program.instrs[i];
        const char *name = made.program.values[instr->out[0].value].name;
        bool alone = instr->op == TRI_OP_SLICE && instr->attr.message.cut.parts == 1;
        if (instr->op == TRI_OP_BLOCK || instr->op == TRI_OP_UNBLOCK || alone)
            continue;
        if (at == moves.num || !same_move(c, &made, instr, &moves.items[at++], axis_of))
            fail_msg("%s\n  step %d of trireme place is not %s of %s", text_of(c), at,
                     tri_op_get(instr->op)->name, name);
    }
    if (at != moves.num)
        fail_msg("%s\n  trireme place has %d moves, the pass %d", text_of(c), moves.num, at);
    tri_program_fini(&made.program);
}

static void the_calculator_agrees(void **state)
{
    (void)state;
    size_t num;
    placement_case *cases = make_cases(CASES, &num);
    for (size_t i = 0; i < num; i++)
        if (!cases[i].mixed) /* the calculator has no axis for both */
            check_calculator(&cases[i]);
    free(cases);
}

/* ---- all ranks ---- */

static void check_match(const placement_case *c)
{
    tr_error err = {0};
    conversion *made = calloc((size_t)c->num_ranks, sizeof *made);
    const tri_program *programs[MOST_RANKS];
    assert_non_null(made);
    for (int r = 0; r < c->num_ranks; r++) {
        if (make_conversion(c, r, c->number % 2 == 0, &made[r], &err) != TR_OK)
            fail_msg("%s\n  rank %d: %s", text_of(c), r, err.message);
        programs[r] = &made[r].program;
    }
    if (tri_programs_match(programs, c->num_ranks, &err) != TR_OK)
        fail_msg("%s\n  %s", text_of(c), err.message);
    for (int r = 0; r < c->num_ranks; r++)
        tri_program_fini(&made[r].program);
    free(made);
}

static void programs_of_all_ranks_match(void **state)
{
    (void)state;
    size_t num;
    placement_case *cases = make_cases(RUN_CASES, &num);
    for (size_t i = 0; i < num; i++)
        check_match(&cases[i]);
    free(cases);
}

typedef struct run_job {
    const placement_case *cases;
    size_t num;
} run_job;

static tr_status compare(const placement_case *c, int rank, const tri_placement *at,
                         const float *found, const char *name, tr_error *err)
{
    float wanted[MOST_ELEMENTS];
    int64_t count = expected_at(c, rank, at, wanted);
    for (int64_t i = 0; i < count; i++)
        if (found[i] != wanted[i])
            return tri_fail(err, TR_ERROR_INTERNAL, "rank %d has %g at element %lld of %s, not %g",
                            rank, (double)found[i], (long long)i, name, (double)wanted[i]);
    return TR_OK;
}

static tr_status run_program(const placement_case *c, const conversion *made, int rank,
                             tri_device *device, const tri_exchange *exchange, tr_error *err)
{
    const tri_program *program = &made->program;
    tri_store store;
    tri_executor executor;
    tri_store_plan(&store, device, &program, 1);
    TRI_TRY(tri_store_alloc(&store, err));
    tr_status status = tri_executor_init(&executor, program, &store, 1, err);
    if (status == TR_OK) {
        executor.exchange = exchange;
        expected_at(c, rank, &c->from, tri_executor_memory(&executor, made->input, 0));
        status = tri_executor_run(&executor, err);
        for (int i = 0; i < made->num && status == TR_OK; i++)
            if (program->values[made->value[i]].output)
                status = compare(c, rank, &made->at[i],
                                 tri_executor_memory(&executor, made->value[i], 0),
                                 program->values[made->value[i]].name, err);
        tri_executor_fini(&executor);
    }
    tri_store_free(&store);
    return status;
}

/* As a training does it: the groups of the program are joined, its messages travel by comm. */
static tr_status run_case(tr_comm *comm, const placement_case *c, tri_device *device, tr_error *err)
{
    conversion *made = calloc(1, sizeof *made);
    tri_session *session = calloc(1, sizeof *session);
    tri_ranks ranks = {0};
    tr_status status =
        made && session ? TR_OK : tri_fail(err, TR_ERROR_RUNTIME, "no memory for the test");
    if (status == TR_OK)
        status = make_conversion(c, tr_comm_rank(comm), c->number % 2 == 0, made, err);
    bool built = status == TR_OK;
    if (built) {
        session->config.programs = 1 << TRI_PROGRAM_TRAIN;
        session->programs[TRI_PROGRAM_TRAIN] = made->program;
        status = tri_ranks_use(&ranks, comm, session, err);
        if (status == TR_OK)
            status = run_program(c, made, tr_comm_rank(comm), device, &session->exchange, err);
        tri_ranks_leave(&ranks);
    }
    if (built)
        tri_program_fini(&made->program);
    free(session);
    free(made);
    return status == TR_OK ? TR_OK : tri_fail_prefix(err, status, "%s\n ", text_of(c));
}

static tr_status run_rank(tr_comm *comm, void *context, tr_error *err)
{
    const run_job *job = context;
    tri_device device;
    const tri_device_config config = {.kind = "cpu", .num_threads = 1, .isa = "auto"};
    TRI_TRY(tri_device_open(&config, &device, err));
    tr_status status = TR_OK;
    for (size_t i = 0; i < job->num && status == TR_OK; i++)
        if (job->cases[i].num_ranks == tr_comm_size(comm))
            status = run_case(comm, &job->cases[i], &device, err);
    tri_device_close(&device);
    return status;
}

static void every_element_is_in_its_place(void **state)
{
    (void)state;
    run_job job;
    tr_error err = {0};
    placement_case *cases = make_cases(RUN_CASES, &job.num);
    job.cases = cases;
    for (int ranks = 1; ranks <= MOST_RANKS; ranks++) {
        size_t num = 0;
        for (size_t i = 0; i < job.num; i++)
            num += cases[i].num_ranks == ranks;
        if (num > 0 && tr_comm_run_threads(ranks, &(tr_comm_options){.deadline_s = 60}, run_rank,
                                           &job, &err) != TR_OK)
            fail_msg("%s", err.message);
    }
    free(cases);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plans_can_be_carried_out),
        cmocka_unit_test(the_calculator_agrees),
        cmocka_unit_test(programs_of_all_ranks_match),
        cmocka_unit_test(every_element_is_in_its_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
