/* Profiles of made-up samples (sim/measured/measured.h): a sample predicts itself, what lies
 * between two lies between, what was not measured is named; files give back what they were given,
 * and others are refused with what to do. No clock is looked at. */
#include "small_models.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fs.h"
#include "sim/step_sim.h"
#include "train/plan/stage_programs.h"
#include "trireme/trireme.h"

static tri_work product(double m, double n, double k)
{
    tri_work work = {.op = TRI_OP_MATMUL, .kind = "f32,f32>f32 nt", .size = {m, n, k}};
    work.flops = 2 * m * n * k;
    work.bytes = 4 * (m * k + n * k + m * n);
    return work;
}

static double formula(const tri_work *work)
{
    return 1e-11 * work->flops + 1e-10 * work->bytes + 2e-6;
}

static void describe(tri_measured *p)
{
    snprintf(p->device, sizeof p->device, "cpu, 2 threads, avx512");
    snprintf(p->kind, sizeof p->kind, "cpu");
    snprintf(p->model, sizeof p->model, "made up");
    snprintf(p->isa, sizeof p->isa, "avx512");
    snprintf(p->date, sizeof p->date, "2026-01-01 00:00");
    snprintf(p->version, sizeof p->version, "0");
    p->cores = 2;
    p->memory_bytes = 1e9;
    p->memory_bytes_per_s = 1e10;
    p->dense[TRI_RATE_F32] = 1e11;
}

/* Products by the formula times `slower`, but one of them by twice as much. */
static void add_products(tri_measured_table *table, double slower, bool odd)
{
    static const double sizes[] = {64, 256, 1024};
    for (int a = 0; a < 3; a++)
        for (int b = 0; b < 3; b++) {
            tri_work work = product(sizes[a], sizes[b], 128);
            double more = odd && a == 1 && b == 1 ? 2 : 1;
            assert_true(tri_measured_add(table, &work, slower * more * formula(&work)));
        }
}

static void make_profile(tri_measured *p, bool odd)
{
    *p = (tri_measured){0};
    describe(p);
    add_products(tri_measured_table_of(p, 1, 2), 1, odd);
    tri_measured_settle(p);
}

static void test_samples_predict_themselves(void **state)
{
    (void)state;
    tri_measured p;
    tri_found found;
    make_profile(&p, true);
    tri_work odd = product(256, 256, 128), even = product(64, 1024, 128);
    assert_float_equal(tri_measured_work(&p, &p.tables[0], &odd, &found) / formula(&odd), 2, 1e-9);
    assert_int_equal(found, TRI_FOUND_SAMPLE);
    assert_float_equal(tri_measured_work(&p, &p.tables[0], &even, &found) / formula(&even), 1,
                       1e-9);
    assert_int_equal(found, TRI_FOUND_SAMPLE);
    /* The same work again: the mean of both. */
    assert_true(tri_measured_add(&p.tables[0], &even, 3 * formula(&even)));
    tri_measured_settle(&p);
    assert_float_equal(tri_measured_work(&p, &p.tables[0], &even, NULL) / formula(&even), 2, 1e-9);
    tri_measured_fini(&p);
}

/* A second moment: the mean, unless something was in the way in one of them. */
static void test_merging(void **state)
{
    (void)state;
    tri_measured p, later;
    make_profile(&p, false);
    make_profile(&later, true); /* one product takes twice as long */
    tri_work near = product(300, 300, 128), odd = product(256, 256, 128);
    assert_true(tri_measured_add(&p.tables[0], &near, 1.00));
    assert_true(tri_measured_add(&later.tables[0], &near, 1.04));
    for (int again = 0; again < 2; again++) {
        assert_true(tri_measured_merge(&later.tables[0], &p.tables[0]));
        tri_measured_settle(&later);
        double seconds = tri_measured_work(&later, &later.tables[0], &odd, NULL);
        assert_float_equal(seconds / formula(&odd), 1, 1e-9);
    }
    double seconds = tri_measured_work(&later, &later.tables[0], &near, NULL);
    assert_true(seconds > 1.005 && seconds < 1.025);
    tri_measured_fini(&p);
    tri_measured_fini(&later);
}

static void test_between(void **state)
{
    (void)state;
    tri_measured p;
    tri_found found;
    make_profile(&p, false);
    for (double m = 80; m < 1024; m *= 1.7) { /* what follows the formula is foreseen by it */
        tri_work work = product(m, 300, 128);
        double seconds = tri_measured_work(&p, &p.tables[0], &work, &found);
        assert_int_equal(found, TRI_FOUND_BETWEEN);
        assert_float_equal(seconds / formula(&work), 1, 5e-3);
    }
    tri_measured_fini(&p);
    make_profile(&p, true);
    tri_work near = product(250, 260, 128), far = product(250, 1000, 128);
    double off_near = tri_measured_work(&p, &p.tables[0], &near, NULL) / formula(&near);
    double off_far = tri_measured_work(&p, &p.tables[0], &far, NULL) / formula(&far);
    assert_true(off_near > 1.8 && off_near < 2.01); /* as the odd one beside it */
    assert_true(off_far < 1.4);
    tri_measured_fini(&p);
}

static void test_what_is_missing(void **state)
{
    (void)state;
    tri_measured p;
    tri_found found;
    make_profile(&p, false);
    tri_work other = product(256, 256, 128), none = {.op = TRI_OP_ADD, .kind = "f32,f32>f32"};
    snprintf(other.kind, sizeof other.kind, "f32,f32>f32 tn");
    none.flops = 1e6;
    none.size[0] = none.bytes = 12e6;
    assert_float_equal(tri_measured_work(&p, &p.tables[0], &other, &found) / formula(&other), 1,
                       1e-3);
    assert_int_equal(found, TRI_FOUND_OTHER);
    assert_true(tri_measured_work(&p, &p.tables[0], &none, &found) > 0);
    assert_int_equal(found, TRI_FOUND_RATES);
    tri_measured_fini(&p);
}

/* What steps take beyond their instructions, from steps that were seen; the error is that of the
 * others. */
static void test_steps(void **state)
{
    (void)state;
    tri_measured p;
    double mean, worst;
    make_profile(&p, false);
    tri_measured_table *table = &p.tables[0];
    for (int i = 1; i <= 4; i++) {
        tri_measured_step step = {.name = "step", .instr_seconds = 0.01 * i, .seen = true};
        step.launches = 100.0 * i * i;
        step.seconds = step.instr_seconds + 1e-3 + 2e-6 * step.launches;
        assert_true(tri_measured_add_step(table, &step));
    }
    tri_measured_settle(&p);
    assert_float_equal(table->step_s, 1e-3, 1e-9);
    assert_float_equal(table->launch_s, 2e-6, 1e-12);
    assert_int_equal(tri_measured_residual(table, &mean, &worst), 4);
    assert_float_equal(worst, 0, 1e-9);
    tri_measured_step unseen = {.name = "other", .seconds = 1, .predicted = 0.9};
    assert_true(tri_measured_add_step(table, &unseen));
    assert_int_equal(tri_measured_residual(table, &mean, &worst), 1);
    assert_float_equal(mean, 0.1, 1e-9);
    tri_measured_fini(&p);
}

static void test_messages(void **state)
{
    (void)state;
    tri_measured p;
    bool guessed;
    make_profile(&p, false);
    tri_measured_message small = {TRI_COLL_ALL_GATHER, 2, 1e3, 1e-5};
    tri_measured_message large = {TRI_COLL_ALL_GATHER, 2, 1e5, 1e-3};
    assert_true(tri_measured_add_message(&p, &small) && tri_measured_add_message(&p, &large));
    assert_float_equal(tri_measured_message_s(&p, TRI_COLL_ALL_GATHER, 2, 1e4, &guessed), 1e-4,
                       1e-9);
    assert_false(guessed);
    assert_float_equal(tri_measured_message_s(&p, TRI_COLL_ALL_GATHER, 2, 1e6, &guessed), 1e-2,
                       1e-9);
    assert_float_equal(tri_measured_message_s(&p, TRI_COLL_ALL_GATHER, 2, 10, &guessed), 1e-5,
                       1e-9);
    assert_float_equal(tri_measured_message_s(&p, TRI_COLL_ALL_REDUCE, 2, 1e4, &guessed), 1e-4,
                       1e-9);
    assert_true(guessed);
    tri_measured_fini(&p);
}

/* ---- files ---- */

static void expect(const char *path, const char *word)
{
    tri_measured p;
    tr_error err = {0};
    assert_int_equal(tri_measured_read(path, &p, &err), TR_ERROR_INPUT);
    if (!strstr(err.message, word) || !strstr(err.message, "bench device"))
        fail_msg("\"%s\" is not said, or not what to do: %s", word, err.message);
}

static void replace(const char *path, const char *text, size_t length)
{
    tr_error err = {0};
    assert_int_equal(tri_file_replace(path, text, length, &err), TR_OK);
}

static void test_files(void **state)
{
    (void)state;
    tri_measured p, back;
    tr_error err = {0};
    char path[] = "/tmp/trireme-measured-XXXXXX", *text;
    size_t length;
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    make_profile(&p, true);
    tri_measured_message message = {TRI_COLL_ALL_GATHER, 2, 1e3, 1e-5};
    tri_measured_step unseen = {.name = "other", .seconds = 1, .predicted = 0.9};
    assert_true(tri_measured_add_message(&p, &message));
    assert_true(tri_measured_add_step(&p.tables[0], &unseen));
    /* An empty file is of another kind, and stays. */
    assert_int_equal(tri_measured_write(&p, path, &err), TR_ERROR_INPUT);
    unlink(path);
    assert_int_equal(tri_measured_write(&p, path, &err), TR_OK);
    assert_int_equal(tri_measured_write(&p, path, &err), TR_OK); /* over a profile */
    assert_int_equal(tri_measured_read(path, &back, &err), TR_OK);
    for (double m = 50; m < 2000; m *= 1.3) {
        tri_work work = product(m, 256, 128);
        double was = tri_measured_work(&p, &p.tables[0], &work, NULL);
        assert_float_equal(tri_measured_work(&back, &back.tables[0], &work, NULL) / was, 1, 1e-6);
    }
    assert_string_equal(back.device, p.device);
    assert_int_equal(back.num_messages, 1);
    assert_float_equal(back.tables[0].steps[0].predicted, 0.9, 1e-9);
    tri_measured_fini(&back);
    tri_measured_fini(&p);

    assert_int_equal(tri_file_read(path, &text, &length, &err), TR_OK);
    replace(path, text, length / 2);
    expect(path, "not valid JSON");
    char *sample = strstr(text, "\"samples\":[[");
    assert_non_null(sample);
    memcpy(sample, "\"samples\":[7,", strlen("\"samples\":[7,"));
    replace(path, text, length);
    expect(path, "");
    static const char later[] =
        "{\"format\": \"trireme measured profile\", \"format_version\": 99}";
    replace(path, later, strlen(later));
    expect(path, "version 99");
    replace(path, "{\"a\": 1}", 8);
    expect(path, "not a measured profile");
    free(text);
    unlink(path);
}

/* ---- programs ---- */

typedef struct layout {
    tr_settings *settings;
    tri_session_config config;
    tri_stage_programs stages;
} layout;

static void open_layout(layout *l, const char *const *assignments)
{
    tr_error err = {0};
    l->settings = settings_of(TINY, assignments);
    if (tri_settings_complete(l->settings, &err) != TR_OK ||
        tri_session_config_from(l->settings, &l->config, &err) != TR_OK)
        fail_msg("%s", err.message);
    l->config.programs = TRI_PROGRAMS_TRAIN;
    if (tri_stage_programs_compile(&l->config, false, &l->stages, &err) != TR_OK)
        fail_msg("%s", err.message);
}

static void close_layout(layout *l)
{
    tri_stage_programs_fini(&l->stages);
    tr_settings_destroy(l->settings);
}

/* A profile of exactly the work of a program: all instructions take so long. */
static void sample_programs(tri_measured_table *table, const layout *l, double seconds)
{
    for (uint32_t s = 0; s < l->stages.num_stages; s++) {
        const tri_program *program = l->stages.programs[s];
        for (uint32_t i = 0; i < program->num_instrs; i++)
            for (int first = 0; first < 2 && program->instrs[i].message == TRI_NONE; first++) {
                tri_work work = tri_work_of(program, i, first);
                assert_true(tri_measured_add(table, &work, seconds));
            }
    }
}

static double time_of(const layout *l, tri_measured_model *model)
{
    tr_error err = {0};
    tri_timing timing;
    const tri_step_case c = {.programs = l->stages.programs,
                             .planned_bytes = l->stages.planned_bytes,
                             .num_stages = l->stages.num_stages,
                             .stride = l->stages.stride,
                             .in_place = true,
                             .peak_flops = 1,
                             .measured = model};
    tri_step_sim sim;
    if (tri_step_sim_run(&c, &sim, &err) != TR_OK)
        fail_msg("%s", err.message);
    timing = sim.timing;
    double seconds = timing.seconds;
    tri_step_sim_fini(&sim);
    return seconds;
}

/* One rank: as many instructions as run, times what one takes, and the host's part. */
static void test_a_step(void **state)
{
    (void)state;
    tri_measured p = {0};
    tr_error err = {0};
    layout l;
    tri_measured_model model;
    describe(&p);
    open_layout(&l, SET("layout.microbatches=2"));
    tri_measured_table *table = tri_measured_table_of(&p, 1, 2);
    sample_programs(table, &l, 1e-3);
    tri_measured_settle(&p);
    table->step_s = 0.5;
    assert_int_equal(
        tri_measured_model_init(&model, &p, l.stages.programs, l.stages.num_stages, 1, 2, &err),
        TR_OK);
    assert_int_equal(model.num_missing, 0);
    assert_int_equal(model.num_found[TRI_FOUND_BETWEEN], 0);
    double runs = 0;
    tri_work_runs *count = tri_work_count(l.stages.programs[0]);
    for (size_t i = 0; i < l.stages.programs[0]->num_instrs; i++)
        runs += count[i].first + count[i].rest;
    free(count);
    assert_float_equal(time_of(&l, &model), 0.5 + 1e-3 * runs, 1e-6 * runs);
    tri_measured_model_fini(&model);
    /* Two ranks were not measured, and the message names what was. */
    assert_int_equal(
        tri_measured_model_init(&model, &p, l.stages.programs, l.stages.num_stages, 2, 1, &err),
        TR_ERROR_INPUT);
    assert_non_null(strstr(err.message, "1 x 2"));
    close_layout(&l);
    tri_measured_fini(&p);
}

/* Ranks of a pipeline are beside others for a part of the time: neither as quick as alone nor as
 * slow as always in company. */
static void test_company(void **state)
{
    (void)state;
    layout l;
    double seconds[3];
    open_layout(&l, SET("layout.pp=2", "layout.microbatches=2", "train.batch=8"));
    for (int k = 0; k < 3; k++) { /* busy and alone: as quick, as slow, and one of each */
        tri_measured p = {0};
        tr_error err = {0};
        tri_measured_model model;
        describe(&p);
        sample_programs(tri_measured_table_of(&p, 2, 1), &l, k == 0 ? 1e-3 : 2e-3);
        sample_programs(tri_measured_table_of(&p, 1, 1), &l, k == 1 ? 2e-3 : 1e-3);
        tri_measured_message message = {TRI_COLL_ALL_GATHER, 2, 1e3, 1e-9};
        assert_true(tri_measured_add_message(&p, &message));
        tri_measured_settle(&p);
        if (tri_measured_model_init(&model, &p, l.stages.programs, l.stages.num_stages, 2, 1,
                                    &err) != TR_OK)
            fail_msg("%s", err.message);
        seconds[k] = time_of(&l, &model);
        tri_measured_model_fini(&model);
        tri_measured_fini(&p);
    }
    assert_true(seconds[0] < 0.97 * seconds[2] && seconds[2] < 0.97 * seconds[1]);
    close_layout(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_samples_predict_themselves),
        cmocka_unit_test(test_merging),
        cmocka_unit_test(test_between),
        cmocka_unit_test(test_what_is_missing),
        cmocka_unit_test(test_steps),
        cmocka_unit_test(test_messages),
        cmocka_unit_test(test_files),
        cmocka_unit_test(test_a_step),
        cmocka_unit_test(test_company),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
