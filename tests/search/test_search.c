/* The search on small spaces at random, beside every layout of them looked at exactly.
 *
 *     TRIREME_RANDOM_SEED=7 TRIREME_RANDOM_CASES=1000 build/tests/test_search
 *     TRIREME_RANDOM_SEED=7 TRIREME_RANDOM_CASE=123 build/tests/test_search    # that one
 *
 * Cases that differ are shown as settings, what is fixed, and the machine. */
#include "small_models.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/settings_internal.h"
#include "search_cases.h"

enum { CASES = 20, MOST_LAYOUTS = 60, MESHES = 64 };

typedef struct cases {
    uint64_t seed, begin, end;
} cases;

static cases cases_of(uint64_t usual)
{
    uint64_t only = number_from_environment("TRIREME_RANDOM_CASE", UINT64_MAX);
    uint64_t num = number_from_environment("TRIREME_RANDOM_CASES",
                                           getenv("TRIREME_TEST_FULL") ? 20 * usual : usual);
    return (cases){.seed = number_from_environment("TRIREME_RANDOM_SEED", 5),
                   .begin = only != UINT64_MAX ? only : 0,
                   .end = only != UINT64_MAX ? only + 1 : num};
}

static void show(const search_case *c, uint64_t number)
{
    print_message("case %llu:%s\n  %.6g bytes each\n", (unsigned long long)number, c->text,
                  (double)c->of.machine.memory_bytes);
}

static void print_layout(const char *what, const tri_layout_result *r)
{
    tri_text text;
    tri_text_init(&text);
    tri_choice_text(&r->choice, &text);
    print_message("  %s: %.9g s, %.9g bytes: %s\n", what, r->seconds, (double)r->bytes,
                  text.failed ? "?" : text.chars);
    tri_text_fini(&text);
}

/* ---- the search equals brute force ---- */

static int compare_bytes(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;
    return *x < *y ? -1 : *x > *y;
}

/* A budget that all layouts fit, or half of them, or few, or none. */
static void choose_budget(search_case *c, const tri_layout_result *all)
{
    uint64_t *bytes = calloc(c->space.count + 1, sizeof *bytes);
    size_t num = 0;
    assert_non_null(bytes);
    for (size_t i = 0; i < c->space.count; i++)
        if (all[i].known)
            bytes[num++] = all[i].bytes;
    qsort(bytes, num, sizeof *bytes, compare_bytes);
    int64_t kind = random_below(&c->random, 10);
    if (num > 0)
        c->of.machine.memory_bytes = kind < 3   ? 2 * bytes[num - 1]
                                     : kind < 5 ? bytes[num / 2]
                                     : kind < 7 ? bytes[num / 5]
                                     : kind < 9 ? bytes[num / 12]
                                                : bytes[0] - 1;
    free(bytes);
}

/* The fastest of each mesh that fits, fastest first; returns how many there are. */
static size_t best_of_each_mesh(const search_case *c, const tri_layout_result *all,
                                const tri_layout_result *best[MESHES])
{
    size_t num = 0;
    for (size_t i = 0; i < c->space.count; i++) {
        size_t at = 0;
        if (!all[i].known || all[i].bytes > c->of.machine.memory_bytes)
            continue;
        while (at < num && !tri_choice_same_mesh(&best[at]->choice, &all[i].choice))
            at++;
        if (at == num)
            best[num++] = &all[i];
        else if (all[i].seconds < best[at]->seconds)
            best[at] = &all[i];
        assert_true(num < MESHES);
    }
    for (size_t i = 1; i < num; i++)
        for (size_t k = i; k > 0 && best[k]->seconds < best[k - 1]->seconds; k--) {
            const tri_layout_result *slower = best[k - 1];
            best[k - 1] = best[k];
            best[k] = slower;
        }
    return num;
}

/* Of a mesh, the fastest that was listed; NULL: none was. */
static const tri_layout_result *listed(const tri_search *s, const tri_layout_choice *mesh)
{
    for (size_t i = 0; i < s->num_best; i++)
        if (tri_choice_same_mesh(&s->results[s->best[i]].choice, mesh))
            return &s->results[s->best[i]];
    return NULL;
}

/* Recomputation to fit is no part of the space, and may be faster than all of it. */
static bool equals(const tri_layout_result *found, const tri_layout_result *wanted)
{
    double off = found ? found->seconds / wanted->seconds - 1 : 1;
    return fabs(off) < 1e-9 || (off < 0 && found->choice.keeping == TRI_KEEP_FITTING);
}

/* Whether the search lists what it should: the fastest, and of meshes that take little more, and
 * are not beyond those that are wanted, the fastest. */
static bool finds_the_best(const search_case *c, const tri_search *s, const tri_layout_result *all)
{
    const double near = 1.25; /* times the fastest: others are of no interest (search.c) */
    const tri_layout_result *best[MESHES];
    size_t num = best_of_each_mesh(c, all, best);
    bool good = (num == 0) == (s->num_best == 0);
    for (size_t i = 0; i < num && good && i < c->of.num_best; i++) {
        const tri_layout_result *found = listed(s, &best[i]->choice);
        bool full = s->num_best == c->of.num_best; /* of faster ones, which recompute to fit */
        full &= s->results[s->best[s->num_best - 1]].seconds <= best[i]->seconds;
        if (best[i]->seconds >= near * s->results[s->best[0]].seconds || equals(found, best[i]) ||
            (full && !found))
            continue;
        good = false;
        print_layout("it is", best[i]);
        if (found)
            print_layout("found", found);
    }
    if (good && num > 0 && !equals(&s->results[s->best[0]], best[0])) {
        print_layout("it is", best[0]);
        print_layout("found", &s->results[s->best[0]]);
        good = false;
    }
    if ((num == 0) != (s->num_best == 0))
        print_message("  %zu meshes fit, %zu were found\n", num, s->num_best);
    return good;
}

static void search(const search_case *c, tri_search *s)
{
    tr_error err = {0};
    if (tri_search_run(&c->of, s, &err) != TR_OK)
        fail_msg("%s", err.message);
}

/* ---- bounds ---- */

typedef struct violations {
    size_t num, seconds, bytes;                              /* layouts; bounds that are above */
    double most_seconds, most_bytes, sum_seconds, sum_bytes; /* bound / exact: most, and of all */
} violations;

static void bound_layout(const search_case *c, tri_search *s, const tri_layout_result *r,
                         violations *v)
{
    size_t num_cells = s->cells.count, num_pipes = s->pipes.count;
    tri_layout_choice like = r->choice;
    if (like.keeping == TRI_KEEP_FITTING) /* as the search does */
        like.keeping = TRI_KEEP_ALL;
    const tri_layer_cell *cell = &s->cells.items[tri_cell_of(&s->cells, &like)];
    assert_int_equal(s->cells.count, num_cells);
    if (!cell->known)
        fail_msg("%s: %s", c->text, cell->why); /* the layout can be, so its layers can */
    const tri_pipe *pipe = &s->pipes.items[tri_pipe_of(&s->pipes, &r->choice)];
    assert_true(cell->repeats || s->pipes.count == num_pipes);
    tri_bound bound = tri_cell_bound(cell, pipe, &r->choice, &c->of.machine, s->facts.layers);
    double seconds = bound.seconds / r->seconds, bytes = bound.bytes / (double)r->bytes;
    const char *above = getenv("TRIREME_RANDOM_SHOW");
    if (above && fmax(seconds, bytes) > atof(above)) {
        print_message("  %.4f of the time, %.4f of the bytes", seconds, bytes);
        print_layout("", r);
    }
    v->num++;
    v->seconds += seconds > 1;
    v->bytes += bytes > 1;
    v->most_seconds = fmax(v->most_seconds, seconds);
    v->most_bytes = fmax(v->most_bytes, bytes);
    v->sum_seconds += seconds;
    v->sum_bytes += bytes;
}

/* ---- all cases ---- */

typedef struct totals {
    size_t layouts, looked, wrong, empty, recompute;
    violations bounds;
} totals;

static void try_case(search_case *c, uint64_t number, totals *t)
{
    const char *above = getenv("TRIREME_RANDOM_SHOW");
    tri_layout_result *all = search_case_look_at_all(c, c->of.threads);
    tri_search s;
    choose_budget(c, all);
    if (c->of.fixed.keeping == TRI_KEEP_FITTING) { /* what fits depends on it */
        free(all);
        all = search_case_look_at_all(c, c->of.threads);
    }
    search(c, &s);
    assert_memory_equal(&s.facts, &c->facts, sizeof s.facts);
    assert_int_equal(s.space.count, c->space.count);
    t->layouts += c->space.count;
    t->looked += s.num_results;
    t->empty += s.num_best == 0;
    t->recompute += s.num_best > 0 && s.results[s.best[0]].choice.keeping != TRI_KEEP_ALL;
    bool good = finds_the_best(c, &s, all);
    t->wrong += !good;
    for (size_t k = 0; k < c->space.count; k++)
        if (all[k].known)
            bound_layout(c, &s, &all[k], &t->bounds);
    if (!good || above)
        show(c, number);
    tri_search_fini(&s);
    free(all);
}

static int try_cases(void **state)
{
    cases run = cases_of(CASES);
    totals *t = calloc(1, sizeof *t);
    *state = t;
    for (uint64_t i = run.begin; t && i < run.end; i++) {
        search_case c;
        search_case_init(&c, run.seed, i, MOST_LAYOUTS);
        try_case(&c, i, t);
        search_case_fini(&c);
    }
    return t ? 0 : -1;
}

static int free_totals(void **state)
{
    free(*state);
    return 0;
}

static void the_search_equals_brute_force(void **state)
{
    const totals *t = *state;
    cases run = cases_of(CASES);
    print_message("seed %llu: %llu spaces of %zu layouts, %zu looked at; in %zu nothing fits, in "
                  "%zu the best recomputes; %zu are wrong\n",
                  (unsigned long long)run.seed, (unsigned long long)(run.end - run.begin),
                  t->layouts, t->looked, t->empty, t->recompute, t->wrong);
    assert_int_equal(t->wrong, 0);
    if (run.end - run.begin >= CASES) /* budgets of all kinds */
        assert_true(t->empty > 0 && t->recompute > 0 && t->looked < t->layouts);
}

static void bounds_are_below_exact_times(void **state)
{
    const violations *v = &((const totals *)*state)->bounds;
    double num = v->num > 0 ? (double)v->num : 1;
    print_message("of %zu bounds %zu of times are above (at most %.4f of the time; %.3f is the "
                  "mean), %zu of bytes (%.4f; %.3f)\n",
                  v->num, v->seconds, v->most_seconds, v->sum_seconds / num, v->bytes,
                  v->most_bytes, v->sum_bytes / num);
    assert_int_equal(v->seconds, 0);
    assert_int_equal(v->bytes, 0);
}

/* ---- threads ---- */

static void expect_same_result(const tri_layout_result *a, const tri_layout_result *b)
{
    tri_text text[2];
    for (int i = 0; i < 2; i++) {
        tri_text_init(&text[i]);
        tri_choice_text(i == 0 ? &a->choice : &b->choice, &text[i]);
    }
    assert_string_equal(text[0].chars, text[1].chars);
    for (int i = 0; i < 2; i++)
        tri_text_fini(&text[i]);
    assert_true(a->known == b->known && a->fits == b->fits && a->planned == b->planned);
    assert_true(a->seconds == b->seconds && a->bytes == b->bytes && a->bound == b->bound);
    assert_string_equal(a->why, b->why);
}

static void expect_same(const tri_search *a, const tri_search *b)
{
    assert_int_equal(a->num_results, b->num_results);
    assert_int_equal(a->num_best, b->num_best);
    assert_int_equal(a->num_families, b->num_families);
    assert_true(a->rest_bound == b->rest_bound);
    for (size_t i = 0; i < a->num_results; i++)
        expect_same_result(&a->results[i], &b->results[i]);
    for (size_t i = 0; i < a->num_best; i++)
        assert_int_equal(a->best[i], b->best[i]);
    for (size_t i = 0; i < a->num_families; i++) {
        assert_string_equal(a->families[i].trait, b->families[i].trait);
        assert_string_equal(a->families[i].why, b->families[i].why);
    }
}

static void threads_change_nothing(void **state)
{
    (void)state;
    static const int threads[] = {1, 2, 5};
    for (uint64_t i = 0; i < 4; i++) {
        tri_search s[3];
        search_case c;
        search_case_init(&c, 77, i, 2 * MOST_LAYOUTS);
        for (int t = 0; t < 3; t++) {
            c.of.threads = threads[t];
            search(&c, &s[t]);
        }
        for (int t = 1; t < 3; t++)
            expect_same(&s[0], &s[t]);
        for (int t = 0; t < 3; t++)
            tri_search_fini(&s[t]);
        search_case_fini(&c);
    }
}

/* ---- what is listed ---- */

/* A look at what an earlier one found finds the same. */
static void lanes_are_looked_at_anew(void **state)
{
    (void)state;
    size_t lanes = 0;
    for (uint64_t i = 0; i < 6; i++) {
        tr_error err = {0};
        search_case c;
        search_case_init(&c, 5, i, MOST_LAYOUTS / 4);
        tri_layout_result *all = search_case_look_at_all(&c, c.of.threads);
        for (size_t k = 0; k < c.space.count; k++) {
            tri_layout_result again = {.choice = all[k].choice};
            lanes += all[k].choice.group_lanes;
            if (!all[k].known || !all[k].choice.group_lanes)
                continue;
            assert_int_equal(tri_layout_look(&c.of.machine, c.settings, TRI_LOOK_ALL, &again, &err),
                             TR_OK);
            assert_true(again.seconds == all[k].seconds && again.bytes == all[k].bytes);
            assert_true(again.choice.group_lanes);
        }
        free(all);
        search_case_fini(&c);
    }
    assert_true(lanes > 3);
}

/* The settings of a person who types what is printed. */
static tr_settings *typed(const search_case *c, const tri_layout_choice *choice)
{
    tr_settings *settings;
    tr_error err = {0};
    tri_text text;
    tri_text_init(&text);
    tri_text_add(&text, "%s", "");
    tri_choice_command(choice, c->of.machine.memory_bytes, c->settings, &text);
    assert_int_equal(tri_settings_clone(c->settings, &settings, &err), TR_OK);
    for (char *word = strtok(text.chars, " "); word; word = strtok(NULL, " "))
        if (strcmp(word, "--set") != 0 && tr_settings_set(settings, word, &err) != TR_OK)
            fail_msg("%s: %s", word, err.message);
    tri_text_fini(&text);
    return settings;
}

/* Compiles with proof, with the bytes that are listed; and takes as long as `sim` says. */
static void expect_as_listed(const search_case *c, const tri_layout_result *r)
{
    const tri_search_machine *m = &c->of.machine;
    tr_settings *settings = typed(c, &r->choice);
    tri_stage_programs stages;
    tri_step_sim step;
    tr_error err = {0};
    if (tri_layout_compile(m, settings, TRI_PROGRAMS_TRAIN, true, &stages, &err) != TR_OK)
        fail_msg("%s: %s", c->text, err.message);
    uint64_t most = 0;
    for (uint32_t s = 0; s < stages.num_stages; s++)
        most = stages.planned_bytes[s] > most ? stages.planned_bytes[s] : most;
    assert_int_equal(stages.planned_bytes[r->fullest], r->bytes);
    assert_int_equal(most, r->bytes);
    assert_int_equal(stages.by_group, r->choice.group_lanes);
    const tri_step_case of_step = {.programs = stages.programs, /* as verb_sim_model.c has it */
                                   .planned_bytes = stages.planned_bytes,
                                   .num_stages = stages.num_stages,
                                   .stride = stages.stride,
                                   .one_lane = !stages.by_group,
                                   .costs = m->costs,
                                   .in_place = true,
                                   .brief = true,
                                   .peak_flops = m->peak_flops};
    if (tri_step_sim_run(&of_step, &step, &err) != TR_OK)
        fail_msg("%s", err.message);
    if (fabs(step.timing.seconds / r->seconds - 1) > 1e-9) {
        print_message("%s\n", c->text);
        print_layout("listed", r);
        fail_msg("it takes %.9g s", step.timing.seconds);
    }
    tri_step_sim_fini(&step);
    tri_stage_programs_fini(&stages);
    tr_settings_destroy(settings);
}

static void what_is_listed_is_so(void **state)
{
    (void)state;
    size_t num = 0, lanes = 0, fitted = 0;
    cases run = cases_of(12);
    for (uint64_t i = run.begin; i < run.end; i++) {
        const double less = 0.9;
        tri_search s;
        search_case c;
        search_case_init(&c, run.seed + 50, i, MOST_LAYOUTS);
        search(&c, &s);
        if (i % 2 == 1 && s.num_best > 0) { /* so that something has to be computed again */
            c.of.fixed.keeping = c.of.fixed.keeping == TRI_FREE ? TRI_KEEP_FITTING : TRI_FREE;
            c.of.machine.memory_bytes = (uint64_t)(less * (double)s.results[s.best[0]].bytes);
            tri_search_fini(&s);
            search(&c, &s);
        }
        for (size_t b = 0; b < s.num_best; b++) {
            const tri_layout_result *r = &s.results[s.best[b]];
            assert_true(r->known && r->fits && r->planned);
            expect_as_listed(&c, r);
            num++;
            lanes += r->choice.group_lanes;
            fitted += r->choice.keeping == TRI_KEEP_FITTING;
        }
        tri_search_fini(&s);
        search_case_fini(&c);
    }
    print_message("%zu layouts, %zu of them with a lane for each group, %zu recompute to fit\n",
                  num, lanes, fitted);
    assert_true(run.end - run.begin < 12 || (num > lanes && lanes > 0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_search_equals_brute_force),
        cmocka_unit_test(bounds_are_below_exact_times),
        cmocka_unit_test(threads_change_nothing),
        cmocka_unit_test(lanes_are_looked_at_anew),
        cmocka_unit_test(what_is_listed_is_so),
    };
    return cmocka_run_group_tests(tests, try_cases, free_totals);
}
