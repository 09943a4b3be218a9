/* Pictures of simulated steps (sim/picture): they are XML, have a row for each lane, draw nothing
 * twice, and the numbers in them are those of the timing and of the memory plan. */
#include "small_models.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/picture/picture.h"
#include "sim/picture/picture_parts.h"
#include "sim/roofline.h"
#include "train/plan/stage_programs.h"
#include "trireme/trireme.h"

enum { MOST_STAGES = 8, MOST_LANES = 32, MOST_DEEP = 32, MOST_BOXES = 40000 };

typedef struct drawn {
    tr_settings *settings;
    tri_stage_programs stages;
    tri_device_model model;
    tri_step_case step;
    tri_step_sim sim;
    tri_text text[TRI_NUM_PICTURES];
    int layout;
} drawn;

static void draw(drawn *d, const char *const *assignments, int layout)
{
    tr_error err = {0};
    tri_session_config config;
    bool wanted[TRI_NUM_PICTURES];
    *d = (drawn){.settings = settings_of(NULL, assignments), .layout = layout};
    d->model = (tri_device_model){.device = tri_device_spec_find("h100"),
                                  .link = tri_link_spec_find("nvlink4"),
                                  .rate = TRI_RATE_16,
                                  .efficiency = 0.5};
    assert_non_null(d->model.device);
    if (!d->model.link)
        d->model.link = tri_link_spec_find(d->model.device->link);
    tr_status status = tri_api_describe(d->settings, &config, &err);
    if (status == TR_OK)
        status = tri_stage_programs_compile(&config, true, &d->stages, &err);
    d->step = (tri_step_case){.programs = d->stages.programs,
                              .planned_bytes = d->stages.planned_bytes,
                              .num_stages = d->stages.num_stages,
                              .stride = d->stages.stride,
                              .one_lane = layout % 2,
                              .costs = tri_roofline_costs(&d->model),
                              .peak_flops = d->model.device->dense[TRI_RATE_16]};
    for (int k = 0; k < TRI_NUM_FASTER; k++)
        d->step.faster[k] = d->step.costs;
    if (status == TR_OK)
        status = tri_step_sim_run(&d->step, &d->sim, &err);
    for (int k = 0; k < TRI_NUM_PICTURES; k++) {
        wanted[k] = true;
        tri_text_init(&d->text[k]);
    }
    const tri_picture_case c = {.step = &d->step,
                                .sim = &d->sim,
                                .title = "<a> & \"b\"",
                                .device = d->model.device,
                                .rate = d->model.rate,
                                .share = d->model.efficiency,
                                .with_host = true};
    if (status == TR_OK)
        status = tri_pictures_draw(&c, wanted, d->text, &err);
    if (status != TR_OK)
        fail_msg("layout %d: %s", layout, err.message);
    assert_true(d->stages.num_stages <= MOST_STAGES);
}

static void finish(drawn *d)
{
    for (int k = 0; k < TRI_NUM_PICTURES; k++)
        tri_text_fini(&d->text[k]);
    tri_step_sim_fini(&d->sim);
    tri_stage_programs_fini(&d->stages);
    tr_settings_destroy(d->settings);
}

#define SMALL                                                                                      \
    "model.num_layers=4", "model.dim=64", "model.num_heads=4", "model.ffn_dim=128",                \
        "model.vocab=256", "train.batch=16", "data.seq_len=32", "precision.kind=bf16"
#define MOE                                                                                        \
    "model.kind=llama", "model.num_experts=4", "model.experts_per_token=2", "model.expert_dim=64", \
        "model.dropout=0"
#define LAYOUT(...)                                                                                \
    {                                                                                              \
        SMALL, __VA_ARGS__, "run.threads=1", NULL                                                  \
    }

static const char *const layouts[][24] = {
    LAYOUT("layout.dp=1"),
    LAYOUT("layout.dp=1", "layout.microbatches=4"),
    LAYOUT("layout.dp=4", "layout.zero=3"),
    LAYOUT("layout.dp=2", "layout.tp=2", "layout.microbatches=2", "layout.zero=1"),
    LAYOUT("layout.tp=2", "layout.recompute=full"),
    LAYOUT("layout.pp=4", "layout.dp=2", "layout.microbatches=8", "layout.schedule=zb-h1"),
    LAYOUT("layout.pp=2", "layout.tp=2", "layout.microbatches=4", "layout.schedule=interleaved"),
    LAYOUT("layout.pp=4", "layout.dp=2", "layout.microbatches=8", "layout.schedule=pipedream-2bw",
           "train.clip=0", "model.kind=llama", "model.tied_head=false", "model.dropout=0"),
    LAYOUT(MOE, "layout.pp=2", "layout.dp=2", "layout.ep=2", "layout.microbatches=8",
           "layout.schedule=dualpipe", "layout.pairs=true"),
    LAYOUT("layout.pp=2", "layout.microbatches=300", "train.batch=300"),
};
enum { NUM_LAYOUTS = sizeof layouts / sizeof *layouts };

/* ---- XML ---- */

/* The end of a tag that begins here; its quotes are closed and its entities are known. */
static const char *end_of_tag(const char *at)
{
    for (char quote = 0; *at; at++) {
        if (*at == '<' && quote == 0)
            return NULL;
        if (quote ? *at == quote : *at == '"')
            quote = quote ? 0 : *at;
        else if (*at == '>' && !quote)
            return at;
    }
    return NULL;
}

static void check_entity(const char *at)
{
    static const char *const known[] = {"&lt;", "&amp;", "&gt;", "&quot;"};
    bool found = false;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        found |= strncmp(at, known[i], strlen(known[i])) == 0;
    if (!found)
        fail_msg("an \"&\" that is no entity: %.40s", at);
}

static void check_xml(const char *text)
{
    char open[MOST_DEEP][16];
    int depth = 0, roots = 0;
    const char *at = strstr(text, "-->") + 3;
    assert_true(strncmp(text, TRI_PICTURE_MARK, strlen(TRI_PICTURE_MARK)) == 0);
    for (; *at; at++) {
        assert_true((unsigned char)*at >= ' ' || *at == '\n');
        if (*at == '&')
            check_entity(at);
        if (*at != '<')
            continue;
        bool closes = at[1] == '/';
        const char *name = at + 1 + closes, *end = end_of_tag(at + 1);
        size_t length = strspn(name, "abcdefghijklmnopqrstuvwxyz");
        if (!end || length == 0 || length > 15)
            fail_msg("a tag that does not end: %.60s", at);
        if (closes) {
            assert_true(depth > 0);
            if (strlen(open[--depth]) != length || strncmp(open[depth], name, length) != 0)
                fail_msg("<%s> is closed by %.20s", open[depth], at);
        } else if (end[-1] != '/') {
            assert_true(depth < MOST_DEEP);
            roots += depth == 0;
            snprintf(open[depth++], sizeof open[0], "%.*s", (int)length, name);
        }
        at = end;
    }
    assert_int_equal(depth, 0);
    assert_int_equal(roots, 1);
}

static void test_xml(void **state)
{
    (void)state;
    for (int n = 0; n < NUM_LAYOUTS; n++) {
        drawn d;
        draw(&d, layouts[n], n);
        for (int k = 0; k < TRI_NUM_PICTURES; k++) {
            check_xml(d.text[k].chars);
            assert_non_null(strstr(d.text[k].chars, "&lt;a> &amp; \"b\""));
        }
        finish(&d);
    }
}

/* ---- timeline ---- */

typedef struct heard {
    bool lane[MOST_STAGES][MOST_LANES];
    uint32_t num;
} heard;

static void hear(void *context, const tri_timing_event *event)
{
    heard *h = context;
    if (event->what != TRI_DOES_MESSAGE)
        return;
    assert_true(event->lane < MOST_LANES);
    h->num += !h->lane[event->class][event->lane];
    h->lane[event->class][event->lane] = true;
}

typedef struct span {
    double from, to;
} span;

static int by_place(const void *a, const void *b)
{
    const span *x = a, *y = b;
    if (x->from != y->from)
        return x->from < y->from ? -1 : 1;
    return x->to < y->to ? -1 : x->to > y->to;
}

/* All that is drawn in a row, whatever its colour, side by side. */
static void check_row(const char *row, int layout)
{
    static span spans[MOST_BOXES];
    size_t num = 0;
    const char *end = strstr(row, "</g>");
    for (const char *at = row; (at = strstr(at, "<rect x=\"")) && at < end; at++) {
        double x, y, width;
        assert_int_equal(sscanf(at, "<rect x=\"%lf\" y=\"%lf\" width=\"%lf\"", &x, &y, &width), 3);
        assert_true(num < MOST_BOXES);
        spans[num++] = (span){x, x + width};
    }
    for (const char *at = row; (at = strpbrk(at, "M")) && at < end; at++) {
        double x, y, width;
        if (sscanf(at, "M%lf %lfh%lf", &x, &y, &width) != 3)
            continue;
        assert_true(num < MOST_BOXES);
        spans[num++] = (span){x, x + width};
    }
    assert_true(num > 0);
    qsort(spans, num, sizeof *spans, by_place);
    for (size_t i = 1; i < num; i++)
        if (spans[i].from < spans[i - 1].to - 0.021) /* what two numbers are rounded by */
            fail_msg("layout %d: %.2f to %.2f and %.2f to %.2f overlap", layout, spans[i - 1].from,
                     spans[i - 1].to, spans[i].from, spans[i].to);
}

static void test_timeline(void **state)
{
    (void)state;
    for (int n = 0; n < NUM_LAYOUTS; n++) {
        drawn d;
        draw(&d, layouts[n], n);
        tr_error err = {0};
        heard h = {0};
        assert_int_equal(tri_step_sim_watch(&d.step, &(tri_timing_watch){&h, hear}, &err), TR_OK);
        uint32_t num = 0;
        double end = 0, width, ms = 1e3 * d.sim.timing.seconds;
        const char *text = d.text[TRI_PICTURE_TIMELINE].chars;
        for (const char *row = text; (row = strstr(row, "<g class=\"row\">")); row++, num++)
            check_row(row, n);
        assert_int_equal(num, d.stages.num_stages + h.num);
        for (const char *at = text; (at = strstr(at, " to ")); at++) {
            double to;
            if (sscanf(at, " to %lf ms</title>", &to) == 1)
                end = fmax(end, to);
        }
        if (fabs(end - ms) > 1e-5 * ms)
            fail_msg("layout %d: the last piece ends at %g ms, the step at %g", n, end, ms);
        assert_int_equal(sscanf(strstr(text, "<svg"), "<svg xmlns=%*s width=\"%lf", &width), 1);
        assert_true(width <= 2000);
        finish(&d);
    }
}

/* ---- memory ---- */

/* What lies in `work` never takes more than that has, whatever instruction runs. */
static void check_work(const tri_program *program, int layout)
{
    tri_live *live = tri_live_make(program);
    uint64_t room = 0, most = 0;
    assert_non_null(live);
    for (size_t s = 0; s < program->num_spaces; s++)
        if (program->spaces[s].kind == TRI_SPACE_WORK &&
            program->spaces[s].where == TRI_WHERE_DEVICE)
            room += tri_space_total(&program->spaces[s]);
    for (size_t i = 0; i < program->num_instrs; i++) {
        uint64_t all = live[i].activations + live[i].gradients + live[i].work;
        most = all > most ? all : most;
    }
    free(live);
    if (most > room || 2 * most < room)
        fail_msg("layout %d: %llu bytes live in a work of %llu", layout, (unsigned long long)most,
                 (unsigned long long)room);
}

static void check_plan(const drawn *d)
{
    const tri_store *store = &d->stages.sessions[d->sim.fullest]->store;
    const char *text = strstr(d->text[TRI_PICTURE_MEMORY].chars, "<title>in use: ");
    double use, reserved, plan;
    uint64_t slabs = 0, whole = tri_device_round(store->scratch_bytes);
    assert_non_null(text);
    assert_int_equal(sscanf(text,
                            "<title>in use: %lf bytes at most; reserved: %lf bytes; "
                            "plan: %lf bytes",
                            &use, &reserved, &plan),
                     3);
    for (int k = 0; k < TRI_NUM_SLABS; k++) {
        slabs += store->slabs[k].bytes + store->host[k].bytes;
        whole += tri_device_round(store->slabs[k].bytes) + tri_device_round(store->host[k].bytes);
    }
    /* The plan has the scratch of kernels besides, and slabs and scratch in whole pages. */
    assert_true(reserved == (double)slabs);
    assert_true(plan == (double)whole);
    if (use > reserved || use < 0.75 * reserved)
        fail_msg("layout %d: %.0f bytes in use, %.0f reserved", d->layout, use, reserved);
}

static void test_memory(void **state)
{
    (void)state;
    for (int n = 0; n < NUM_LAYOUTS; n++) {
        drawn d;
        draw(&d, layouts[n], n);
        for (uint32_t s = 0; s < d.stages.num_stages; s++)
            check_work(d.stages.programs[s], n);
        check_plan(&d);
        finish(&d);
    }
}

/* ---- shares and operators ---- */

static double hover_of(const char *text, const char *name)
{
    char title[96];
    double value = 0;
    snprintf(title, sizeof title, "<title>%s: ", name);
    const char *at = strstr(text, title);
    return at && sscanf(at + strlen(title), "%lf", &value) == 1 ? value : 0;
}

static void test_utilisation(void **state)
{
    (void)state;
    for (int n = 0; n < NUM_LAYOUTS; n++) {
        drawn d;
        draw(&d, layouts[n], n);
        const char *text = d.text[TRI_PICTURE_UTILISATION].chars;
        double all = d.sim.timing.seconds * d.stages.num_stages, computing = 0;
        for (uint32_t s = 0; s < d.stages.num_stages; s++)
            for (int k = 0; k < TRI_NUM_TIME_KINDS; k++)
                computing += d.sim.timing.ranks[s].time[k];
        assert_true(fabs(hover_of(text, "compute") - 100 * computing / all) < 2e-4);
        for (uint32_t a = 0; a < d.sim.num_axes; a++) {
            char name[64];
            double waited = 0;
            for (uint32_t s = 0; s < d.stages.num_stages; s++)
                waited += d.sim.exposed[s][a];
            snprintf(name, sizeof name, "wait for %s", d.sim.axis[a]);
            assert_true(fabs(hover_of(text, name) - 100 * waited / all) < 2e-4);
        }
        finish(&d);
    }
}

/* Whether the first instruction of this operator counts as a product. */
static bool is_product(const tri_program *program, const char *name)
{
    for (uint32_t i = 0; i < program->num_instrs; i++)
        if (strcmp(tri_op_get(program->instrs[i].op)->name, name) == 0)
            return strncmp(name, "attention", 9) != 0 && tri_op_multiplies(program->instrs[i].op);
    fail_msg("there is no operator %s", name);
    return false;
}

static void test_roofline(void **state)
{
    (void)state;
    for (int n = 0; n < NUM_LAYOUTS; n++) {
        drawn d;
        draw(&d, layouts[n], n);
        const tri_program *program = d.stages.programs[d.sim.slowest];
        const tri_device_spec *device = d.model.device;
        double products = 0;
        int dots = 0;
        for (const char *at = d.text[TRI_PICTURE_ROOFLINE].chars; (at = strstr(at, "<circle "));
             at++) {
            char name[64];
            double ms, share, intensity, flops;
            const char *title = strstr(at, "<title>");
            assert_int_equal(sscanf(title,
                                    "<title>%63[^:]: %lf ms, %lf %% of computing; %lf FLOP "
                                    "a byte, %lf FLOP/s",
                                    name, &ms, &share, &intensity, &flops),
                             5);
            products += is_product(program, name) ? ms : 0;
            dots++;
            assert_true(share > 0 && share <= 100);
            /* Below both limits, of which half is reached. */
            assert_true(flops <= 0.5 * device->dense[TRI_RATE_16] * 1.001);
            assert_true(flops <= 0.5 * intensity * device->memory_bytes_per_s * 1.002);
        }
        assert_true(dots >= 5);
        double timed = 1e3 * d.sim.timing.ranks[d.sim.slowest].time[TRI_TIME_PRODUCTS];
        if (fabs(products - timed) > 1e-2 * timed) /* the least have no dot */
            fail_msg("layout %d: products take %g ms in the picture, and %g", n, products, timed);
        finish(&d);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_xml),      cmocka_unit_test(test_timeline),
        cmocka_unit_test(test_memory),   cmocka_unit_test(test_utilisation),
        cmocka_unit_test(test_roofline),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
