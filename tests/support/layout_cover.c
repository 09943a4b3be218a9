#include "layout_cover.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"

/* --- Tolerances ------------------------------------------------------------------------------- */

typedef struct limits {
    double loss, norm, weights, tensor;
} limits;

/* In fp32 losses and norms have the limits of the contract. The weights of sgd follow the gradients
 * and are held to little more than rounding; adamw and muon make steps of one size out of gradients
 * of any, so that where a gradient is zero in theory (keys' biases) its noise decides.
 *
 * In bf16 an element is rounded to 1 part in 256, and a layout rounds other partial sums than one
 * rank does. Means over a few hundred targets leave 1e-4 of that in the loss and 1e-2 in the norm
 * (measured over 20 steps). Where the loss is steep a step may jump in one run and not in another;
 * one rank in 16 bits is then as far from others that round elsewhere (allow_rounding). Weights
 * are held to a share of the way that they went, single tensors for sgd alone. The first steps of
 * adamw and muon have the same size whatever the gradient: of norms within 1e-3 at the first step
 * they make 3e-2 on both sides of fp32 at the fourth (a llama of ten layers, with and without
 * stages; sgd keeps 1e-3). */
static limits limits_of(const cell *c)
{
    bool sgd = c->is[CELL_OPTIM] == SGD || c->is[CELL_OPTIM] == SGD_LONG;
    if (c->is[CELL_PRECISION] == FP32)
        return sgd ? (limits){1e-5, 1e-4, 1e-5, 1e-4} : (limits){1e-5, 1e-4, 1e-3, 1e-2};
    return sgd ? (limits){1e-3, 5e-2, 2e-2, 1e-1} : (limits){1e-3, 1e-1, 0.2, (double)INFINITY};
}

/* --- One cell --------------------------------------------------------------------------------- */

/* One rank with the same model, precision and update rule, in this many micro-batches. */
static const cell_run *run_alone(alone_runs *alone, const cell *c, int microbatches, int steps)
{
    tr_error err = {0};
    cell one = cell_alone(c);
    one.is[CELL_MICRO] = microbatches;
    for (size_t i = 0; i < alone->num; i++)
        if (memcmp(&alone->cells[i], &one, sizeof one) == 0)
            return &alone->runs[i];
    assert_true(alone->num < MAX_ALONE);
    if (cell_run_do(&alone->runs[alone->num], &one, steps, &err) != TR_OK)
        fail_msg("one rank: %s", err.message);
    alone->cells[alone->num] = one;
    return &alone->runs[alone->num++];
}

/* What rounding to 16 bits does to one rank: how far it is from fp32, and from itself when its
 * batch is cut. A layout may be twice as far. */
static void allow_rounding(limits *l, alone_runs *alone, const cell *c, int steps)
{
    const cell_run *one = run_alone(alone, c, 1, steps);
    cell wide = *c;
    wide.is[CELL_PRECISION] = FP32;
    cell_distance narrowing = cell_compare(run_alone(alone, &wide, 1, steps), one, 1);
    cell_distance cutting = cell_compare(one, run_alone(alone, c, 3, steps), 1);
    l->loss = fmax(l->loss, 2 * fmax(narrowing.loss, cutting.loss));
    l->norm = fmax(l->norm, 2 * fmax(narrowing.norm, cutting.norm));
}

void alone_fini(alone_runs *alone)
{
    for (size_t i = 0; i < alone->num; i++)
        cell_run_fini(&alone->runs[i]);
    alone->num = 0;
}

/* One try of check_cell. */
static bool try_cell(alone_runs *alone, const cell *c, int steps, cell_distance *d)
{
    char name[CELL_NAME];
    tr_error err = {0};
    cell_run run;
    cell_name(c, name, sizeof name);
    *d = (cell_distance){0};
    const cell_run *one = run_alone(alone, c, 1, steps);
    tr_status status = cell_run_do(&run, c, steps, &err);
    if (status != TR_OK) {
        cell_run_fini(&run);
        print_message("FAILED %s: %s\n", name, err.message);
        return false;
    }
    *d = cell_compare(one, &run, cell_world(c));
    cell_run_fini(&run);
    limits l = limits_of(c);
    if (c->is[CELL_PRECISION] != FP32)
        allow_rounding(&l, alone, c, steps);
    bool fine = d->ranks_agree && d->same_start && d->loss <= l.loss && d->norm <= l.norm &&
                d->balance <= l.loss && d->same_biases && d->eval <= l.loss &&
                d->weights <= l.weights && d->tensor <= l.tensor;
    if (!fine || getenv("TRIREME_CELLS"))
        print_message(
            "%s %s: loss %.1e, norm %.1e, balance %.1e, eval %.1e, weights %.1e, "
            "tensor %zu %.1e%s%s%s\n",
            fine ? "ok    " : "FAILED", name, d->loss, d->norm, d->balance, d->eval, d->weights,
            d->worst_tensor, d->tensor, d->ranks_agree ? "" : ", ranks differ",
            d->same_start ? "" : ", other initial weights", d->same_biases ? "" : ", other biases");
    return fine;
}

/* Where two experts are as good to the last bit but one, rounding decides which a token goes to,
 * and from there on a layout trains to losses of its own. It will hardly do so by another seed. */
bool check_cell(alone_runs *alone, const cell *c, int steps, cell_distance *d)
{
    bool fine = try_cell(alone, c, steps, d);
    if (fine || !c->is[CELL_ROUTER] || !d->ranks_agree || !d->same_start)
        return fine;
    print_message("... once more with another seed\n");
    cell again = *c;
    again.is[CELL_SEED] = 2;
    fine = try_cell(alone, &again, steps, d);
    d->again = true;
    return fine;
}

bool few_again(size_t again, size_t num)
{
    if (again > 0)
        print_message("%zu of %zu cells were tried again\n", again, num);
    return again <= (num + 49) / 50;
}

/* --- Covers ----------------------------------------------------------------------------------- */

size_t list_cells(const levels *table, cell *cells)
{
    int at[NUM_FACTORS] = {0};
    size_t num = 0;
    for (;;) {
        cell c;
        for (int f = 0; f < NUM_FACTORS; f++)
            c.is[f] = table[f].num ? table[f].value[at[f]] : 0;
        if (cell_valid(&c)) {
            assert_true(num < MAX_CELLS);
            cells[num++] = c;
        }
        int f = NUM_FACTORS - 1;
        while (f >= 0 && ++at[f] >= table[f].num)
            at[f--] = 0;
        if (f < 0)
            return num;
    }
}

/* Combinations of values of so many factors that no chosen cell has had; of factors that are the
 * same in all cells none are made. */
typedef struct combinations {
    int strength, num_factors, factors[NUM_FACTORS];
    bool *open; /* by a number made of the factors, in order, each with its value */
} combinations;

typedef enum visit { OPEN, COUNT, CLOSE } visit;

/* Visits the combinations of a cell that begin with these factors; how many were open before. */
static int visit_all(combinations *of, const cell *c, visit what, int first, int depth,
                     size_t number)
{
    if (depth == of->strength) {
        bool was = of->open[number];
        of->open[number] = what == COUNT ? was : what == OPEN;
        return was;
    }
    int num = 0;
    for (int i = first; i < of->num_factors; i++) {
        size_t value = (size_t)c->is[of->factors[i]];
        num += visit_all(of, c, what, i + 1, depth + 1,
                         (number * NUM_FACTORS + (size_t)i) * MAX_LEVELS + value);
    }
    return num;
}

static bool varies(const cell *cells, size_t num, int factor)
{
    for (size_t i = 1; i < num; i++)
        if (cells[i].is[factor] != cells[0].is[factor])
            return true;
    return false;
}

static combinations open_combinations(const cell *cells, size_t num, int strength)
{
    size_t size = 1;
    for (int i = 0; i < strength; i++)
        size *= NUM_FACTORS * MAX_LEVELS;
    combinations of = {.strength = strength, .open = calloc(size, sizeof *of.open)};
    assert_non_null(of.open);
    for (int f = 0; f < NUM_FACTORS; f++)
        if (varies(cells, num, f))
            of.factors[of.num_factors++] = f;
    for (size_t i = 0; i < num; i++) {
        for (int f = 0; f < NUM_FACTORS; f++)
            assert_in_range(cells[i].is[f], 0, MAX_LEVELS - 1);
        visit_all(&of, &cells[i], OPEN, 0, 0, 0);
    }
    return of;
}

size_t cover_cells(const cell *cells, size_t num, int strength, uint64_t seed, cell *chosen)
{
    combinations of = open_combinations(cells, num, strength);
    int *most = malloc(num * sizeof *most); /* a cell has no more than when it was last counted */
    assert_non_null(most);
    for (size_t i = 0; i < num; i++)
        most[i] = INT_MAX;
    size_t picked = 0;
    for (;; picked++) {
        int best = 0;
        uint32_t best_draw = 0;
        for (size_t i = 0; i < num; i++) {
            if (most[i] < best || most[i] == 0)
                continue;
            int open = most[i] = visit_all(&of, &cells[i], COUNT, 0, 0, 0);
            uint32_t draw = tri_random_word(seed, i, picked, 1);
            if (open > best || (open == best && open > 0 && draw > best_draw)) {
                best = open;
                best_draw = draw;
                chosen[picked] = cells[i];
            }
        }
        if (best == 0)
            break;
        visit_all(&of, &chosen[picked], CLOSE, 0, 0, 0);
    }
    free(most);
    free(of.open);
    return picked;
}

size_t check_covers(const levels *table, uint64_t num_covers, int steps)
{
    cell *cells = malloc(MAX_CELLS * sizeof *cells), *chosen = malloc(MAX_CELLS * sizeof *chosen);
    alone_runs *alone = calloc(1, sizeof *alone);
    assert_true(cells && chosen && alone);
    size_t num = list_cells(table, cells), failed = 0, again = 0, tried = 0;
    for (uint64_t seed = 1; seed <= num_covers; seed++) {
        size_t num_chosen = cover_cells(cells, num, 2, seed, chosen);
        for (size_t i = 0; i < num_chosen; i++) {
            cell_distance d;
            failed += !check_cell(alone, &chosen[i], steps, &d);
            again += d.again;
        }
        tried += num_chosen;
        print_message("%zu of %zu cells cover all pairs\n", num_chosen, num);
    }
    alone_fini(alone);
    free(alone);
    free(cells);
    free(chosen);
    return failed + !few_again(again, tried);
}
