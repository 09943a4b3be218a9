/* layout.offload: moments, masters and activations on the host or in a file. No bit changes, in any
 * layout; the device's memory falls by what rests elsewhere; and what cannot be is refused. */
#include "layout_cells.h"
#include "small_models.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "temp_dir.h"
#include "trireme/trireme.h"

static const temp_dir *temp;

static int setup(void **state)
{
    int failed = temp_dir_setup(state);
    temp = *state;
    return failed;
}

/* ---- bits: every choice x zero x pipeline x recomputation ---- */

enum { STEPS = 3 };

static const char *const choices[] = {
    "moments=host",
    "moments=file:%s",
    "activations=host",
    "activations=file:%s",
    "moments=host,activations=host",
    "master=host",
    "master=file:%s,moments=file:%s",
    "moments=host,master=host,activations=file:%s",
};
/* dp, pp, schedule, chunks, micro-batches */
static const struct {
    int dp, pp, schedule, chunks, micro;
} pipes[] = {{2, 1, 0, 0, 1}, {2, 1, 0, 0, 3}, {1, 2, 0, 0, 4}, {2, 2, 3, 0, 4}, {1, 2, 2, 2, 4}};
static const char *const levels_of[] = {"none", "selective", "full"};

enum {
    NUM_CHOICES = sizeof choices / sizeof *choices,
    NUM_ZERO = 4,
    NUM_PIPES = sizeof pipes / sizeof *pipes,
    NUM_LEVELS = sizeof levels_of / sizeof *levels_of,
    NUM_COMBINED = NUM_CHOICES * NUM_ZERO * NUM_PIPES * NUM_LEVELS
};

typedef struct combined {
    int is[4]; /* choice, zero, pipe, level */
} combined;

static combined combined_of(int n)
{
    return (combined){{n % NUM_CHOICES, n / NUM_CHOICES % NUM_ZERO,
                       n / NUM_CHOICES / NUM_ZERO % NUM_PIPES,
                       n / NUM_CHOICES / NUM_ZERO / NUM_PIPES}};
}

static bool with_master(int choice)
{
    return strstr(choices[choice], "master") != NULL;
}

/* A fourth of the models each; masters are of 16-bit ones. */
static cell cell_of(const combined *c)
{
    int pick = c->is[0] + c->is[1] + c->is[2] + c->is[3];
    cell of = {
        .is = {[CELL_MODEL] = (int[]){MODEL_GPT2, MODEL_LLAMA}[pick % 2],
               [CELL_PRECISION] = with_master(c->is[0]) ? (int[]){BF16, FP16}[pick % 2] : FP32,
               [CELL_DP] = pipes[c->is[2]].dp,
               [CELL_TP] = 1,
               [CELL_ZERO] = pipes[c->is[2]].dp > 1 ? c->is[1] : 0,
               [CELL_MICRO] = pipes[c->is[2]].micro,
               [CELL_PP] = pipes[c->is[2]].pp,
               [CELL_SCHEDULE] = pipes[c->is[2]].schedule,
               [CELL_CHUNKS] = pipes[c->is[2]].chunks,
               [CELL_LAYERS] = 4}};
    return of;
}

static void offload_words(char *out, size_t size, int choice)
{
    char list[400];
    snprintf(list, sizeof list, choices[choice], temp->path, temp->path);
    snprintf(out, size, "layout.offload=%s", list);
}

static void expect_same_bits(const combined *c)
{
    cell of = cell_of(c);
    char name[CELL_NAME], plain[80], offloaded[600], words[500];
    tr_error err = {0};
    cell_run here, there;
    cell_name(&of, name, sizeof name);
    offload_words(words, sizeof words, c->is[0]);
    snprintf(plain, sizeof plain, "run.overlap_min_kb=0 layout.recompute=%s", levels_of[c->is[3]]);
    snprintf(offloaded, sizeof offloaded, "%s %s", plain, words);
    if (cell_run_with(&here, &of, plain, STEPS, &err) != TR_OK ||
        cell_run_with(&there, &of, offloaded, STEPS, &err) != TR_OK)
        fail_msg("%s, %s: %s", name, offloaded, err.message);
    if (!cell_same_bits(&here, &there))
        fail_msg("%s, %s: other bits", name, offloaded);
    cell_run_fini(&here);
    cell_run_fini(&there);
}

/* Pairs of values of two of the four that a combination is the first to have. */
static int new_pairs(const combined *c, bool seen[4][4][8][8], bool mark)
{
    int num = 0;
    for (int a = 0; a < 4; a++)
        for (int b = a + 1; b < 4; b++) {
            bool *pair = &seen[a][b][c->is[a]][c->is[b]];
            num += !*pair;
            *pair |= mark;
        }
    return num;
}

static void test_bits(void **state)
{
    (void)state;
    bool all = getenv("TRIREME_TEST_FULL") != NULL;
    bool seen[4][4][8][8] = {0};
    int num = 0;
    for (;; num++) {
        int best = num, most = 0;
        for (int n = 0; n < NUM_COMBINED && !all; n++) {
            combined c = combined_of(n);
            int pairs = new_pairs(&c, seen, false);
            best = pairs > most ? n : best;
            most = pairs > most ? pairs : most;
        }
        if (all ? num == NUM_COMBINED : most == 0)
            break;
        combined c = combined_of(best);
        new_pairs(&c, seen, true);
        expect_same_bits(&c);
    }
    assert_true(num >= NUM_CHOICES * NUM_PIPES);
    fprintf(stderr, "%d combinations\n", num);
}

/* What follows each other on one lane, slow messages, tp with sp, cp, experts, and two directions.
 */
static void test_other_layouts(void **state)
{
    (void)state;
    static const struct {
        cell cell;
        const char *more;
    } cases[] = {
        {{{MODEL_GPT2, FP32, ADAMW, 1, 2, 1, 0, 0, 2, 0}}, ""},
        {{{MODEL_LLAMA, BF16, ADAMW, 2, 2, 1, 3, 0, 2, 0}}, "layout.offload=master=host"},
        {{{MODEL_MLM, FP32, MUON, 2, 1, 0, 1, 0, 2, 0}}, ""},
        {{{MODEL_LLAMA, FP32, ADAMW, 1, 1, 0, 0, 0, 1, 1}}, "model.loss_tile=5"},
        {{{MODEL_GPT2, FP32, ADAMW, 1, 1, 0, 0, 0, 1, 0}}, "run.overlap=false"},
        {{{MODEL_GPT2, FP32, SGD, 1, 1, 0, 0, 0, 8, 0, 4, 9, 0, 8}}, ""}, /* dualpipe */
        {{{MODEL_GPT2, FP32, SGD, 1, 1, 0, 0, 0, 8, 0, 4, 9, 0, 8}}, "layout.pairs=true"},
        {{{MODEL_LLAMA, FP32, ADAMW, 1, 1, 0, 0, 0, 1, 0}}, "layout.host_update=true"},
        {{{MODEL_LLAMA, BF16, ADAMW, 1, 1, 0, 0, 0, 1, 0}}, "layout.host_update=true"},
        {{.is = {[CELL_MODEL] = MODEL_LLAMA,
                 [CELL_DP] = 2,
                 [CELL_TP] = 1,
                 [CELL_MICRO] = 2,
                 [CELL_ROUTER] = SIGMOID,
                 [CELL_EP] = 2,
                 [CELL_ZERO] = 1}},
         ""},
        {{.is = {[CELL_MODEL] = MODEL_LLAMA,
                 [CELL_DP] = 2,
                 [CELL_TP] = 1,
                 [CELL_MICRO] = 1,
                 [CELL_ROUTER] = SOFTMAX,
                 [CELL_EP] = 2}},
         "layout.host_update=true"},
        {{.is = {[CELL_MODEL] = MODEL_LLAMA,
                 [CELL_DP] = 1,
                 [CELL_TP] = 1,
                 [CELL_MICRO] = 1,
                 [CELL_CP] = 3,
                 [CELL_CP_KIND] = RING,
                 [CELL_CP_DEAL] = ZIGZAG}},
         ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char name[CELL_NAME], offloaded[300];
        bool given = strstr(cases[i].more, "offload=") != NULL;
        tr_error err = {0};
        cell_run here, there;
        cell_name(&cases[i].cell, name, sizeof name);
        const char *plain = given || strstr(cases[i].more, "host_update") ? "" : cases[i].more;
        snprintf(offloaded, sizeof offloaded, "%s %s", cases[i].more,
                 given ? "" : "layout.offload=moments=host,activations=host");
        if (cell_run_with(&here, &cases[i].cell, plain, STEPS, &err) != TR_OK ||
            cell_run_with(&there, &cases[i].cell, offloaded, STEPS, &err) != TR_OK)
            fail_msg("%s, %s: %s", name, offloaded, err.message);
        if (!cell_same_bits(&here, &there))
            fail_msg("%s, %s: other bits", name, offloaded);
        cell_run_fini(&here);
        cell_run_fini(&there);
    }
}

/* ---- the plan ---- */

typedef struct plan_bytes {
    double device[TRI_NUM_SLABS], host[TRI_NUM_SLABS], file[TRI_NUM_SLABS];
} plan_bytes;

static plan_bytes plan_of(const char *offload, const char *precision)
{
    plan_bytes bytes;
    char words[300];
    memset(&bytes, 0, sizeof bytes);
    snprintf(words, sizeof words, "layout.offload=%s", offload);
    tr_settings *settings = settings_of(
        TINY, SET("model.num_layers=6", "model.dim=64", "model.num_heads=4", "model.vocab=256",
                  "train.batch=8", "data.seq_len=64", "run.device=cpu", precision, words));
    tr_session *compiled_session = compiled(settings);
    const tri_store *store = &compiled_session->session.store;
    for (int i = 0; i < TRI_NUM_SLABS; i++) {
        bytes.device[i] = (double)store->slabs[i].bytes;
        bytes.host[i] = (double)store->host[i].bytes;
        bytes.file[i] = (double)store->file[i].bytes;
    }
    tr_session_destroy(compiled_session);
    tr_settings_destroy(settings);
    return bytes;
}

static void test_plan(void **state)
{
    (void)state;
    char file[300];
    snprintf(file, sizeof file, "moments=file:%s", temp->path);
    plan_bytes plain = plan_of("", "precision.kind=fp32");
    plan_bytes moments = plan_of("moments=host", "precision.kind=fp32");
    plan_bytes in_file = plan_of(file, "precision.kind=fp32");
    plan_bytes activations = plan_of("activations=host", "precision.kind=fp32");
    assert_true(plain.host[TRI_SLAB_OPTIM] == 0 && plain.device[TRI_SLAB_OPTIM] > 0);
    assert_true(moments.device[TRI_SLAB_OPTIM] == 0);
    /* The scaler and the step stay; what travels begins at pages. */
    assert_in_range(moments.host[TRI_SLAB_OPTIM], plain.device[TRI_SLAB_OPTIM],
                    1.5 * plain.device[TRI_SLAB_OPTIM]);
    assert_true(in_file.device[TRI_SLAB_OPTIM] == 0 &&
                in_file.file[TRI_SLAB_OPTIM] >= plain.device[TRI_SLAB_OPTIM]);
    /* Of six layers the last stays, and one or two are on their way. */
    assert_true(activations.device[TRI_SLAB_SHARED] < 0.6 * plain.device[TRI_SLAB_SHARED]);
    assert_true(activations.host[TRI_SLAB_SHARED] > 0.4 * plain.device[TRI_SLAB_SHARED]);

    plan_bytes wide = plan_of("", "precision.kind=bf16");
    plan_bytes master = plan_of("master=host", "precision.kind=bf16");
    assert_true(master.device[TRI_SLAB_PARAM] < 0.1 * wide.device[TRI_SLAB_PARAM]);
    assert_true(master.host[TRI_SLAB_PARAM] > 0.9 * wide.device[TRI_SLAB_PARAM]);
    assert_true(master.device[TRI_SLAB_COPY] == wide.device[TRI_SLAB_COPY]);
}

/* ---- what is refused ---- */

static void test_refusals(void **state)
{
    (void)state;
    static const struct {
        const char *words[7], *says;
    } cases[] = {
        {{"layout.offload=moment=host"}, "\"moment\" cannot rest elsewhere; moments, master and"},
        {{"layout.offload=moments=disk"}, "\"disk\" is no place"},
        {{"layout.offload=moments=file"}, "a directory that you name"},
        {{"layout.offload=moments=file:"}, "a directory that you name"},
        {{"layout.offload=moments=host,moments=host"}, "says twice where moments rest"},
        {{"layout.offload=moments=file:/a,activations=file:/b"}, "two directories, /a and /b"},
        {{"layout.offload=moments=host", "layout.host_update=true", "layout.dp=2", "layout.zero=1"},
         "layout.host_update=false"},
        {{"layout.offload=master=host", "layout.pp=2", "layout.schedule=pipedream", "train.clip=0",
          "model.kind=llama", "model.dropout=0", "model.tied_head=false"},
         "keeps several versions of the weights"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tri_session_config config;
        tri_session session;
        tr_error err = {0};
        tr_settings *settings;
        assert_int_equal(tr_settings_create(&settings, &err), TR_OK);
        assert_int_equal(tr_settings_load(settings, "recipes/tiny.yaml", &err), TR_OK);
        for (int k = 0; k < 7 && cases[i].words[k]; k++)
            assert_int_equal(tr_settings_set(settings, cases[i].words[k], &err), TR_OK);
        tr_status status = tri_settings_complete(settings, &err);
        if (status == TR_OK)
            status = tri_session_config_from(settings, &config, &err);
        if (status == TR_OK) {
            status = tri_session_compile(&session, &config, &err);
            tri_session_fini(&session);
        }
        assert_int_equal(status, TR_ERROR_INPUT);
        if (!strstr(err.message, cases[i].says))
            fail_msg("case %zu says: %s", i, err.message);
        tr_settings_destroy(settings);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bits),
        cmocka_unit_test(test_other_layouts),
        cmocka_unit_test(test_plan),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, setup, temp_dir_teardown);
}
