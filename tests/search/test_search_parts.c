/* The parts of the search, one by one: the list of layouts, what is fixed, commands, pipelines, and
 * how groups lie on clusters. */
#include "small_models.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/settings_internal.h"
#include "search_cases.h"

/* ---- the list of layouts ---- */

static tri_space_facts random_facts(random_numbers *r)
{
    uint32_t nodes = 1u << random_below(r, 3), node = 1 + (uint32_t)random_below(r, 8);
    return (tri_space_facts){.devices = nodes * node,
                             .node = node,
                             .layers = 1 + (uint32_t)random_below(r, 24),
                             .heads = 1 + (uint32_t)random_below(r, 16),
                             .experts = random_one_in(r, 2) ? 0 : 1u << random_below(r, 4),
                             .batch = 1 + random_below(r, random_one_in(r, 4) ? 2000 : 40),
                             .seq_len = 512 << random_below(r, 4),
                             .can_linear8 = random_one_in(r, 4),
                             .only_linear8 = random_one_in(r, 8),
                             .can_cp = !random_one_in(r, 4)};
}

static void check_mesh(const tri_space_facts *f, const tri_layout_choice *c)
{
    assert_int_equal(c->tp * c->cp * c->pp * c->dp, f->devices);
    assert_true(c->tp <= f->heads && c->tp <= 2 * f->node);
    assert_true(c->pp <= f->layers && c->dp <= f->batch);
    assert_true(c->cp == 1 || (f->can_cp && f->seq_len / c->cp >= 1024));
    assert_true(c->ep == 1 || f->experts % c->ep == 0);
    assert_int_equal(c->dp * c->cp % c->ep, 0);
    assert_true(!c->sp || c->tp > 1);
    assert_true(!c->whole_experts || (c->sp && c->ep > 1));
}

static void check_rest(const tri_space_facts *f, const tri_layout_choice *c)
{
    const tri_search_order *order = tri_search_order_at(c->schedule);
    int64_t all = (int64_t)c->rows * c->microbatches * c->dp;
    int64_t parts = (int64_t)c->microbatches * c->dp;
    assert_true(order && !order->dominated);
    assert_int_equal(c->rows, (f->batch + parts - 1) / parts); /* as programs have */
    assert_in_range(all, f->batch, f->batch + f->batch / 20);
    assert_true(2 * c->microbatches >= c->pp);
    assert_true(c->pp > 1 || c->schedule == 0);
    assert_true(order->many_chunks ? c->chunks >= 2 && c->chunks * c->pp <= f->layers &&
                                         c->microbatches % c->pp == 0
                                   : c->chunks == 0);
    assert_true(c->zero == 0 || c->dp * c->cp > 1);
    assert_true(c->zero == 3 ? c->prefetch == 2 : c->prefetch == 1 && !c->keep_gathered);
    assert_true(c->keeping != TRI_KEEP_FITTING);
    assert_true(!(c->pp > 1 && order->puts_off && c->keeping >= TRI_KEEP_INPUTS));
    assert_true(c->linear8 ? f->can_linear8 || f->only_linear8 : !f->only_linear8);
    assert_false(c->group_lanes);
    if (c->shard_group == 0)
        return;
    assert_int_equal(c->shard_group, f->node / c->tp); /* those of a node */
    assert_true(c->zero > 0 && c->shard_group < c->dp * c->cp && c->shard_group % c->ep == 0 &&
                c->dp * c->cp % c->shard_group == 0);
}

/* All that a layout says, as numbers. */
enum { SAYS = 18 };
typedef struct said {
    int64_t value[SAYS];
} said;

static said what(const tri_layout_choice *c)
{
    return (said){{c->tp, c->cp, c->ep, c->pp, c->dp, c->zero, c->shard_group, c->rows,
                   c->microbatches, c->schedule, c->chunks, c->keeping, c->prefetch, c->sp,
                   c->keep_gathered, c->whole_experts, c->linear8, c->group_lanes}};
}

static int compare_said(const void *a, const void *b)
{
    return memcmp(a, b, sizeof(said));
}

static said *sorted(const tri_choices *list)
{
    said *all = calloc(list->count + 1, sizeof *all);
    assert_non_null(all);
    for (size_t i = 0; i < list->count; i++)
        all[i] = what(&list->items[i]);
    qsort(all, list->count, sizeof *all, compare_said);
    return all;
}

static void layouts_keep_the_rules(void **state)
{
    (void)state;
    random_numbers r = {number_from_environment("TRIREME_RANDOM_SEED", 1)};
    const tri_space_fixed fixed = tri_space_all_free();
    size_t num = 0;
    for (int i = 0; i < 40; i++) {
        const tri_space_facts facts = random_facts(&r);
        tri_choices list;
        tri_space_list(&facts, &fixed, &list);
        assert_false(list.failed);
        for (size_t k = 0; k < list.count; k++) {
            check_mesh(&facts, &list.items[k]);
            check_rest(&facts, &list.items[k]);
        }
        said *all = sorted(&list);
        for (size_t k = 1; k < list.count; k++)
            assert_true(compare_said(&all[k - 1], &all[k]) < 0); /* none twice */
        num += list.count;
        free(all);
        free(list.items);
    }
    print_message("%zu layouts\n", num);
    assert_true(num > 10000);
}

/* Settings by the place of their value in `said`. */
static const char *const keys[SAYS] = {
    "tp",           "cp",       "ep",     "pp",        "dp",       "zero", "shard_group",   NULL,
    "microbatches", "schedule", "chunks", "recompute", "prefetch", "sp",   "keep_gathered", "etp",
    NULL,           NULL};

static void name_value(int key, int64_t value, char *text, size_t size)
{
    static const char *const keepings[] = {"none",    "selective", "full",
                                           "every:2", "every:4",   "budget:1GiB"};
    const char *name = keys[key];
    if (strcmp(name, "schedule") == 0)
        snprintf(text, size, "layout.schedule=%s", tri_search_order_at((size_t)value)->name);
    else if (strcmp(name, "recompute") == 0)
        snprintf(text, size, "layout.recompute=%s", keepings[value]);
    else if (strcmp(name, "sp") == 0 || strcmp(name, "keep_gathered") == 0)
        snprintf(text, size, "layout.%s=%s", name, value ? "true" : "false");
    else
        snprintf(text, size, "layout.%s=%lld", name, (long long)value);
}

/* Chunks that are not told are the order's own. */
static bool has_value(const tri_layout_choice *c, int key, int64_t value)
{
    uint32_t own = tri_search_order_at(c->schedule)->chunks;
    bool untold = strcmp(keys[key], "chunks") == 0 && c->chunks == 0 && value > 0;
    return untold ? value == (own > 0 ? own : 1) : what(c).value[key] == value;
}

/* All layouts have what is fixed, and none that has it is lost; some may come that rules leave out
 * where nothing is said. */
static void expect_fixed(const tri_space_facts *facts, const tri_choices *free_list, int key,
                         int64_t value)
{
    char text[64];
    tri_choices list;
    tri_space_fixed fixed = tri_space_all_free();
    name_value(key, value, text, sizeof text);
    assert_true(tri_space_fix(&fixed, text));
    tri_space_list(facts, &fixed, &list);
    for (size_t i = 0; i < list.count; i++)
        if (!has_value(&list.items[i], key, value))
            fail_msg("a layout does not have %s", text);
    said *all = sorted(&list);
    for (size_t i = 0; i < free_list->count; i++) {
        said wanted = what(&free_list->items[i]);
        if (has_value(&free_list->items[i], key, value) &&
            !bsearch(&wanted, all, list.count, sizeof *all, compare_said))
            fail_msg("a layout that has %s is lost", text);
    }
    free(all);
    free(list.items);
}

static void what_is_fixed_stays(void **state)
{
    (void)state;
    random_numbers r = {number_from_environment("TRIREME_RANDOM_SEED", 1)};
    const tri_space_fixed free_all = tri_space_all_free();
    for (int i = 0; i < 60; i++) {
        const tri_space_facts facts = random_facts(&r);
        tri_choices list;
        tri_space_list(&facts, &free_all, &list);
        int key = (int)random_below(&r, SAYS);
        if (list.count > 0 && list.count < 20000 && keys[key]) {
            const tri_layout_choice *c = &list.items[random_below(&r, (int64_t)list.count)];
            expect_fixed(&facts, &list, key, what(c).value[key]);
        }
        free(list.items);
    }
}

/* Values that no layout has where nothing is fixed. */
static void unusual_values_may_be_fixed(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int key;
        int64_t value;
    } cases[] = {
        {"layout.shard_group=2", 6, 2}, {"layout.chunks=3", 10, 3},
        {"layout.chunks=1", 10, 1},     {"layout.chunks=2", 10, 2},
        {"layout.cp=8", 1, 8},          {"layout.recompute=budget:1GiB", 11, TRI_KEEP_FITTING},
        {"layout.prefetch=5", 12, 5},   {"layout.microbatches=8", 8, 8}};
    const tri_space_facts facts = {.devices = 8,
                                   .node = 8,
                                   .layers = 12,
                                   .heads = 8,
                                   .batch = 32,
                                   .seq_len = 1024,
                                   .can_cp = true};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tri_space_fixed fixed = tri_space_all_free();
        tri_choices list;
        assert_true(tri_space_fix(&fixed, cases[i].text));
        tri_space_list(&facts, &fixed, &list);
        if (list.count == 0)
            fail_msg("%s leaves nothing", cases[i].text);
        for (size_t k = 0; k < list.count; k++)
            if (!has_value(&list.items[k], cases[i].key, cases[i].value))
                fail_msg("a layout does not have %s", cases[i].text);
        free(list.items);
    }
}

static void what_cannot_be_fixed_changes_nothing(void **state)
{
    (void)state;
    static const char *const wrong[] = {"layout.tp=",
                                        "layout.tp",
                                        "layout.tp=x",
                                        "layout.tp=2x",
                                        "layout.tp=-1",
                                        "tp=2",
                                        "model.dim=2",
                                        "layout.tpp=2",
                                        "layout.zero=4",
                                        "layout.etp=2",
                                        "layout.chunks=256",
                                        "layout.prefetch=300",
                                        "layout.sp=yes",
                                        "layout.sp=",
                                        "layout.recompute=x",
                                        "layout.recompute=every:3",
                                        "layout.stages=1,1",
                                        "layout.cp_kind=ring",
                                        "layout.schedule=1F1B",
                                        "layout.schedule=pipedream",
                                        "layout.pp=5000000000",
                                        "layout.a_very_long_name_that_is_not_in_any_table=1",
                                        "",
                                        "="};
    const tri_space_fixed none = tri_space_all_free();
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        tri_space_fixed fixed = none;
        if (tri_space_fix(&fixed, wrong[i]))
            fail_msg("%s was taken", wrong[i]);
        assert_memory_equal(&fixed, &none, sizeof fixed);
    }
}

/* ---- commands ---- */

static tri_layout_choice read_back(const tr_settings *s)
{
    static const char *const keepings[] = {"none", "selective", "full", "every:2", "every:4"};
    const char *recompute = tr_settings_string(s, "layout.recompute");
    tri_layout_choice c = {
        .tp = (uint32_t)tr_settings_int(s, "layout.tp"),
        .cp = (uint32_t)tr_settings_int(s, "layout.cp"),
        .ep = (uint32_t)tr_settings_int(s, "layout.ep"),
        .pp = (uint32_t)tr_settings_int(s, "layout.pp"),
        .dp = (uint32_t)tr_settings_int(s, "layout.dp"),
        .zero = (uint32_t)tr_settings_int(s, "layout.zero"),
        .shard_group = (uint32_t)tr_settings_int(s, "layout.shard_group"),
        .microbatches = (uint32_t)tr_settings_int(s, "layout.microbatches"),
        .schedule = (uint8_t)tri_search_order_find(tr_settings_string(s, "layout.schedule")),
        .chunks = (uint8_t)tr_settings_int(s, "layout.chunks"),
        .keeping = TRI_KEEP_FITTING,
        .prefetch = (uint8_t)tr_settings_int(s, "layout.prefetch"),
        .sp = tr_settings_bool(s, "layout.sp"),
        .keep_gathered = tr_settings_bool(s, "layout.keep_gathered"),
        .whole_experts = tr_settings_int(s, "layout.etp") == 1,
        .linear8 = strcmp(tr_settings_string(s, "precision.linear"), "fp8") == 0,
        .group_lanes = strcmp(tr_settings_string(s, "run.lanes"), "group") == 0};
    for (uint8_t k = 0; k < TRI_KEEP_FITTING; k++)
        if (strcmp(recompute, keepings[k]) == 0)
            c.keeping = k;
    return c;
}

/* What a person types, word by word. */
static void type(tr_settings *settings, char *words)
{
    tr_error err = {0};
    for (char *word = strtok(words, " "); word; word = strtok(NULL, " "))
        if (strcmp(word, "--set") != 0 && tr_settings_set(settings, word, &err) != TR_OK)
            fail_msg("%s: %s", word, err.message);
}

static void commands_give_the_same_choice(void **state)
{
    (void)state;
    static const char *const given[][6] = {
        {NULL},
        {"layout.tp=4", "layout.zero=3", "layout.keep_gathered=true", "layout.prefetch=4", NULL},
        {"layout.sp=true", "layout.recompute=full", "layout.schedule=zb-v", "precision.linear=fp8",
         NULL},
        {"layout.recompute=budget:3MiB", "layout.etp=1", "layout.chunks=3", "layout.ep=2", NULL}};
    random_numbers r = {number_from_environment("TRIREME_RANDOM_SEED", 1)};
    const tri_space_fixed fixed = tri_space_all_free();
    for (int i = 0; i < 60; i++) {
        const tri_space_facts facts = random_facts(&r);
        tri_choices list;
        tri_space_list(&facts, &fixed, &list);
        if (list.count > 0) {
            tri_layout_choice c = list.items[random_below(&r, (int64_t)list.count)];
            tr_settings *settings = settings_of(NULL, given[i % 4]);
            tri_text text;
            c.keeping = random_one_in(&r, 5) ? TRI_KEEP_FITTING : c.keeping;
            c.group_lanes = random_one_in(&r, 4);
            tri_text_init(&text);
            tri_text_add(&text, "%s", "");
            tri_choice_command(&c, 5 << 20, settings, &text);
            type(settings, text.chars);
            tri_layout_choice back = read_back(settings);
            back.rows = c.rows; /* follows from the batch */
            said wanted = what(&c), found = what(&back);
            for (int k = 0; k < SAYS; k++)
                if (wanted.value[k] != found.value[k])
                    fail_msg("case %d: value %d is %lld, not %lld", i, k, (long long)found.value[k],
                             (long long)wanted.value[k]);
            tri_text_fini(&text);
            tr_settings_destroy(settings);
        }
        free(list.items);
    }
}

/* Stages of the settings' own layout are of another one; a budget is all that the device has. */
static void commands_leave_nothing_of_another_layout(void **state)
{
    (void)state;
    const tri_layout_choice c = {.tp = 1,
                                 .cp = 1,
                                 .ep = 1,
                                 .pp = 1,
                                 .dp = 2,
                                 .microbatches = 1,
                                 .rows = 4,
                                 .prefetch = 1,
                                 .keeping = TRI_KEEP_FITTING};
    static const char *const given[] = {"layout.pp=2", "layout.stages=3,1", NULL};
    tr_settings *settings = settings_of(TINY, given);
    tri_text text;
    tri_text_init(&text);
    tri_choice_command(&c, 7 << 20, settings, &text);
    assert_non_null(strstr(text.chars, "--set layout.stages= "));
    assert_non_null(strstr(text.chars, "--set layout.recompute=budget:7MiB"));
    type(settings, text.chars);
    assert_string_equal(tr_settings_string(settings, "layout.stages"), "");
    tri_text_fini(&text);
    tr_settings_destroy(settings);
}

/* ---- pipelines ---- */

static double stretch_of(const char *order, uint32_t pp, uint32_t microbatches, uint8_t chunks,
                         double *live)
{
    tri_pipes pipes = {0};
    const tri_layout_choice c = {.pp = pp,
                                 .microbatches = microbatches,
                                 .schedule = (uint8_t)tri_search_order_find(order),
                                 .chunks = chunks};
    size_t at = tri_pipe_of(&pipes, &c);
    assert_int_equal(tri_pipe_of(&pipes, &c), at); /* once */
    assert_int_equal(pipes.count, 1);
    const tri_pipe pipe = pipes.items[at];
    tri_pipes_fini(&pipes);
    *live = pipe.live;
    return pipe.known ? pipe.stretch : 0;
}

/* Idle shares of papers: (p - 1) / (m + p - 1) of 1F1B and GPipe, of the work (p - 1) / (v m) with
 * v chunks. 1F1B keeps p micro-batches, GPipe all. */
static void pipelines_have_known_bubbles(void **state)
{
    (void)state;
    double live;
    for (uint32_t p = 1; p <= 8; p++)
        for (uint32_t m = (p + 1) / 2; m <= 70; m += 1 + m / 3) {
            double idle = 1 - 1 / stretch_of("1f1b", p, m, 0, &live);
            assert_float_equal(idle, (p - 1.0) / (m + p - 1.0), 1e-9);
            assert_float_equal(live, m < p ? m : p, 1e-9);
            idle = 1 - 1 / stretch_of("gpipe", p, m, 0, &live);
            assert_float_equal(idle, (p - 1.0) / (m + p - 1.0), 1e-9);
            assert_true(live <= m);
            for (uint8_t v = 2; v <= 4 && m % p == 0 && p > 1; v++)
                assert_float_equal(stretch_of("interleaved", p, m, v, &live),
                                   1 + (p - 1.0) / (v * (double)m), 1e-9);
        }
}

static void pipelines_take_no_less_than_their_work(void **state)
{
    (void)state;
    const tri_search_order *order;
    size_t known = 0;
    double live;
    for (size_t s = 0; (order = tri_search_order_at(s)); s++)
        for (uint32_t p = 1; p <= 6; p++)
            for (uint32_t m = 1; m <= 24; m += 1 + m / 2) {
                double stretch = stretch_of(order->name, p, m, order->many_chunks ? 2 : 0, &live);
                assert_true(stretch == 0 || (stretch >= 1 - 1e-12 && stretch <= p + 1e-12));
                assert_true(stretch == 0 || (live > 0 && live <= m + 1e-12));
                known += stretch > 0;
            }
    assert_true(known > 200);
}

/* ---- groups on clusters ---- */

static tri_rank_group random_group(random_numbers *r)
{
    tri_rank_group group = {.size = 1, .first = (uint32_t)random_below(r, 70)};
    uint32_t stride = 1 + (uint32_t)random_below(r, random_one_in(r, 3) ? 40 : 9);
    group.num_levels = 1 + (uint32_t)random_below(r, 3);
    for (uint32_t l = 0; l < group.num_levels; l++) {
        uint32_t size = 1 + (uint32_t)random_below(r, random_one_in(r, 4) ? 60 : 6);
        group.level[l] = (tri_group_level){.size = size, .stride = stride};
        group.size *= size;
        stride *= size * (random_one_in(r, 2) ? 1 : 1 + (uint32_t)random_below(r, 5));
    }
    if (group.num_levels == 1 && random_one_in(r, 4)) {
        group.num_listed = group.size = 2 + (uint32_t)random_below(r, 3);
        for (uint32_t i = 0; i < group.num_listed; i++)
            group.listed[i] = (i ? group.listed[i - 1] + 1 : 0) + (uint32_t)random_below(r, 9);
    }
    return group;
}

/* Every member is looked at. */
static tri_group_span plain_span(const tri_cluster *cluster, const tri_rank_group *group)
{
    tri_group_span span = {.tier = cluster->num_tiers - 1};
    bool found = false;
    for (uint32_t t = 0; t < TRI_CLUSTER_TIERS; t++) {
        bool one = true;
        uint32_t here = 0, most = 0, last = 0;
        for (uint32_t i = 0; i < group->size && t < cluster->num_tiers; i++) {
            uint32_t at = (uint32_t)tri_rank_group_member(group, i) / cluster->tier[t].devices;
            here = i > 0 && at == last ? here + 1 : 1;
            one &= i == 0 || at == last;
            most = here > most ? here : most;
            last = at;
        }
        found |= one && t < cluster->num_tiers;
        if (one && t < span.tier)
            span.tier = t;
        span.inside[t] = found ? group->size : most;
    }
    return span;
}

static void spans_are_those_of_all_members(void **state)
{
    (void)state;
    random_numbers r = {number_from_environment("TRIREME_RANDOM_SEED", 1)};
    for (int i = 0; i < 20000; i++) {
        const tri_rank_group group = random_group(&r);
        tri_cluster cluster = {.num_tiers = 1 + (uint32_t)random_below(&r, 3)};
        uint32_t devices = 1;
        for (uint32_t t = 0; t < cluster.num_tiers; t++)
            cluster.tier[t].devices = devices *= 1 + (uint32_t)random_below(&r, 12);
        cluster.tier[cluster.num_tiers - 1].devices = 1u << 30;
        tri_group_span fast = tri_cluster_span(&cluster, &group);
        tri_group_span slow = plain_span(&cluster, &group);
        if (fast.tier != slow.tier || memcmp(fast.inside, slow.inside, sizeof fast.inside) != 0)
            fail_msg(
                "group %d: size %u first %u stride %u: tier %u, not %u; %u %u %u, not %u %u %u", i,
                group.size, group.first, group.level[0].stride, fast.tier, slow.tier,
                fast.inside[0], fast.inside[1], fast.inside[2], slow.inside[0], slow.inside[1],
                slow.inside[2]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layouts_keep_the_rules),
        cmocka_unit_test(what_is_fixed_stays),
        cmocka_unit_test(unusual_values_may_be_fixed),
        cmocka_unit_test(what_cannot_be_fixed_changes_nothing),
        cmocka_unit_test(commands_give_the_same_choice),
        cmocka_unit_test(commands_leave_nothing_of_another_layout),
        cmocka_unit_test(pipelines_have_known_bubbles),
        cmocka_unit_test(pipelines_take_no_less_than_their_work),
        cmocka_unit_test(spans_are_those_of_all_members),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
