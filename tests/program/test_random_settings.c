/* Settings at random, sensible and not, through what `plan` and `check` do: each is compiled,
 * proven and matched with the other ranks, or refused as wrong input, in words. Nothing else may
 * happen.
 *
 *     TRIREME_RANDOM_SEED=7 TRIREME_RANDOM_CASES=100000 build/tests/test_random_settings
 *     TRIREME_RANDOM_SEED=7 TRIREME_RANDOM_CASE=123 build/tests/test_random_settings    # that one
 */
#include "small_models.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/rng.h"
#include "config/settings_table.h"
#include "program/ledger.h"
#include "program/match.h"
#include "schedule/schedule.h"
#include "trireme/trireme.h"

enum { MAX_SET = 60, MAX_TEXT = 160, CASES = 250, MATCHED_RANKS = 12 };

typedef struct random_case {
    uint64_t state;
    char text[MAX_SET][MAX_TEXT];
    int num;
} random_case;

/* splitmix64 */
static uint64_t next(random_case *c)
{
    uint64_t z = c->state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static int64_t below(random_case *c, int64_t n)
{
    return (int64_t)(next(c) % (uint64_t)n);
}

static bool one_in(random_case *c, int n)
{
    return below(c, n) == 0;
}

static void add(random_case *c, const char *name, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static void add(random_case *c, const char *name, const char *format, ...)
{
    char value[MAX_TEXT - 40];
    va_list args;
    va_start(args, format);
    vsnprintf(value, sizeof value, format, args);
    va_end(args);
    if (c->num < MAX_SET)
        snprintf(c->text[c->num++], MAX_TEXT, "%s=%s", name, value);
}

/* One of the words of a list that ends in NULL. */
static const char *word(random_case *c, const char *const *list)
{
    int num = 0;
    while (list[num])
        num++;
    return list[below(c, num)];
}
#define WORD(c, ...) word((c), (const char *const[]){__VA_ARGS__, NULL})

/* Routers and experts, most of which go together. */
static void add_experts(random_case *c)
{
    int64_t experts = one_in(c, 5) ? 1 + below(c, 9) : 4 << below(c, 3);
    int64_t chosen = 1 + below(c, one_in(c, 8) ? 9 : experts < 3 ? experts : 3);
    add(c, "model.num_experts", "%lld", (long long)experts);
    add(c, "model.experts_per_token", "%lld", (long long)chosen);
    if (one_in(c, 2))
        add(c, "model.expert_dim", "%lld", (long long)(1 + below(c, 40)));
    if (one_in(c, 4))
        add(c, "model.expert_layers", "%s",
            one_in(c, 4) ? WORD(c, "1..", ",", "x", "-1", "99", "2..1") : WORD(c, "0", "0..0"));
    if (one_in(c, 3)) {
        add(c, "model.shared_dim", "%lld", (long long)(1 + below(c, 40)));
        add(c, "model.shared_gate", "%s", WORD(c, "true", "false"));
    }
    if (one_in(c, 2))
        add(c, "model.router_score", "%s", WORD(c, "softmax", "sigmoid", "chosen"));
    if (one_in(c, 3))
        add(c, "model.router_renorm", "false");
    if (one_in(c, 4)) {
        add(c, "model.router_groups", "%d", one_in(c, 4) ? 3 : 2);
        add(c, "model.router_group_limit", "%lld", (long long)(one_in(c, 8) ? below(c, 4) : 2));
    }
    if (one_in(c, 3))
        add(c, "model.router_bias", "0.001");
    if (one_in(c, 3))
        add(c, "model.router_z_loss", "0.001");
    if (one_in(c, 4))
        add(c, "model.balance_loss", "0");
    if (one_in(c, 2))
        add(c, "model.balance_over", "%s", WORD(c, "sequence", "microbatch", "joint"));
}

/* Small sizes of all kinds, most of which go together. */
static void add_model(random_case *c)
{
    const char *kind = WORD(c, "gpt2", "gpt2", "gpt2", "llama", "llama", "llama", "bert", "bert",
                            one_in(c, 2) ? "mlp" : "llama");
    int64_t heads = 1 + below(c, 8), width = 2 * (1 + below(c, 8));
    add(c, "model.kind", "%s", kind);
    add(c, "model.num_layers", "%lld", (long long)(1 + below(c, one_in(c, 8) ? 40 : 9)));
    add(c, "model.num_heads", "%lld", (long long)heads);
    add(c, "model.dim", "%lld", (long long)(one_in(c, 15) ? 1 + below(c, 100) : heads * width));
    if (one_in(c, 2))
        add(c, "model.vocab", "%lld", (long long)(1 + below(c, 400)));
    if (one_in(c, 3))
        add(c, "model.ffn_dim", "%lld", (long long)(1 + below(c, 100)));
    if (one_in(c, strcmp(kind, "llama") == 0 ? 2 : 30))
        add(c, "model.num_kv_heads", "%lld",
            (long long)(one_in(c, 4)     ? 1 + below(c, heads + 1)
                        : heads % 2 == 0 ? heads / 2
                                         : 1));
    if (one_in(c, 4))
        add(c, "model.dropout", "%s", WORD(c, "0.1", "0.5", "0"));
    bool bert = strcmp(kind, "bert") == 0;
    if (one_in(c, bert ? 2 : 15))
        add(c, "model.task", "%s", bert ? WORD(c, "mlm", "classify") : WORD(c, "lm", "mlm"));
    if (one_in(c, 5))
        add(c, "model.window", "%lld", (long long)below(c, 20));
    if (one_in(c, 5))
        add(c, "model.tied_head", "%s", WORD(c, "true", "false"));
    if (one_in(c, 6))
        add(c, "model.qk_norm", "true");
    if (one_in(c, 12))
        add(c, "model.qk_norm_wide", "true");
    if (one_in(c, 6))
        add(c, "model.qkv_bias", "true");
    if (one_in(c, strcmp(kind, "llama") == 0 ? 2 : 40))
        add_experts(c);
    add(c, "data.seq_len", "%lld", (long long)(1 + below(c, 24)));
    if (one_in(c, 6))
        add(c, "data.mask_documents", "true");
    add(c, "train.batch", "%lld", (long long)(1 + below(c, 24)));
}

static int64_t few_ranks(random_case *c)
{
    return one_in(c, 2) ? 1 : 1 + below(c, one_in(c, 6) ? 9 : 4);
}

/* What a setting was given as a number; 0: it was not. */
static int64_t given(const random_case *c, const char *name)
{
    size_t length = strlen(name);
    for (int i = c->num; i-- > 0;)
        if (strncmp(c->text[i], name, length) == 0 && c->text[i][length] == '=')
            return strtoll(c->text[i] + length + 1, NULL, 10);
    return 0;
}

static int64_t common_divisor(int64_t a, int64_t b)
{
    return b == 0 ? a : common_divisor(b, a % b);
}

/* Experts on several of the ranks that share out the batch. */
static void add_expert_layout(random_case *c, int64_t dp)
{
    int64_t cp = given(c, "layout.cp"), experts = given(c, "model.num_experts");
    int64_t ranks = one_in(c, 3) || cp == 0 ? dp : dp * cp;
    if (experts == 0 && !one_in(c, 30))
        return;
    if (!one_in(c, 3))
        add(c, "layout.ep", "%lld",
            (long long)(one_in(c, 8) ? 1 + below(c, 9) : common_divisor(ranks, experts)));
    if (one_in(c, 4))
        add(c, "layout.ep_room", "%s", WORD(c, "0", "1", "2", "1.25", "0.001"));
    if (one_in(c, 4)) {
        add(c, "layout.etp", "%lld", (long long)below(c, 3));
        if (!one_in(c, 5))
            add(c, "layout.sp", "true");
    }
}

/* Values that go together with some numbers of ranks and heads. */
static void add_context(random_case *c)
{
    int64_t cp = one_in(c, 2) ? few_ranks(c) : 1;
    if (cp == 1 && !one_in(c, 20))
        return;
    add(c, "layout.cp", "%lld", (long long)cp);
    add(c, "layout.cp_kind", "%s", WORD(c, "ring", "gather", "gather", "ulysses"));
    if (one_in(c, 3))
        add(c, "layout.cp_heads", "%lld", (long long)(cp % 2 == 0 ? 2 : 1 + below(c, 4)));
    if (one_in(c, 2))
        add(c, "layout.cp_deal", "%s", WORD(c, "auto", "plain", "zigzag", "balanced"));
}

static void add_layout(random_case *c)
{
    int64_t pp = few_ranks(c), dp = few_ranks(c);
    add_context(c);
    add(c, "layout.dp", "%lld", (long long)dp);
    add_expert_layout(c, dp);
    add(c, "layout.tp", "%lld", (long long)few_ranks(c));
    add(c, "layout.pp", "%lld", (long long)pp);
    if (one_in(c, 2))
        add(c, "layout.zero", "%lld", (long long)below(c, 4));
    if (one_in(c, 6))
        add(c, "layout.shard_group", "%lld",
            (long long)(one_in(c, 2)  ? dp
                        : dp % 2 == 0 ? dp / 2
                                      : below(c, 5)));
    if (one_in(c, 8)) {
        add(c, "layout.keep_gathered", "true");
        if (!one_in(c, 5))
            add(c, "layout.zero", "3");
    }
    if (one_in(c, 4))
        add(c, "layout.sp", "true");
    if (one_in(c, 3))
        add(c, "layout.split_backward", "true");
    add(c, "layout.microbatches", "%lld",
        (long long)(one_in(c, 2) ? pp * (1 + below(c, 3)) : 1 + below(c, 9)));
    if (one_in(c, 2)) {
        size_t orders = 0;
        while (tri_order_at(orders))
            orders++;
        add(c, "layout.schedule", "%s",
            one_in(c, 20) ? WORD(c, "", "1F1B", "csv:", "csv:/nowhere", "csv:recipes/tiny.yaml")
                          : tri_order_at((size_t)below(c, (int64_t)orders))->name);
    }
    if (one_in(c, 6))
        add(c, "layout.chunks", "%lld", (long long)below(c, 5));
    if (one_in(c, 10))
        add(c, "layout.stages", "%s", WORD(c, "1,1", "2,2", "4,4,3,5", "1", ",", "0,1", "-1", "x"));
    if (one_in(c, 4))
        add(c, "model.loss_tile", "%lld", (long long)below(c, 40));
    if (one_in(c, 3))
        add(c, "layout.recompute", "%s",
            !one_in(c, 4)
                ? WORD(c, "none", "selective", "full", "every:2", "budget:1MiB", "budget:200kB")
                : WORD(c, "every:0", "budget:1", "budget:", "every:99999999999", "budget:1e300"));
    if (one_in(c, 3))
        add(c, "layout.offload", "%s",
            !one_in(c, 4) ? WORD(c, "moments=host", "activations=host", "activations=file:/tmp",
                                 "master,moments=file:/tmp", "moments,master,activations")
                          : WORD(c, "moments=", "=host", "activations=disk", ",", "weights=host"));
    if (one_in(c, 8))
        add(c, "layout.host_update", "true");
    if (one_in(c, 6))
        add(c, "layout.prefetch", "%lld", (long long)below(c, 4));
    if (one_in(c, 6))
        add(c, "layout.bucket_mb", "%s", WORD(c, "0", "0.001", "1e6"));
}

static void add_rest(random_case *c)
{
    if (one_in(c, 2))
        add(c, "precision.kind", "%s",
            WORD(c, "fp32", "bf16", "bf16", "fp16", "fp16", one_in(c, 4) ? "tf32" : "bf16"));
    if (one_in(c, 4))
        add(c, "precision.grad", "%s", WORD(c, "fp32", "compute"));
    if (one_in(c, 4)) {
        add(c, "precision.linear", "fp8");
        if (!one_in(c, 5))
            add(c, "precision.kind", "bf16");
    }
    if (one_in(c, 2))
        add(c, "optim.moments", "%s", WORD(c, "fp32", "8bit"));
    add(c, "optim.kind", "%s", WORD(c, "sgd", "adam", "adamw", "muon", "lion"));
    if (one_in(c, 6))
        add(c, "optim.groups", "%s",
            WORD(c, "* lr_scale=0.5", "* weight_decay=0", one_in(c, 2) ? "x" : "[",
                 "* lr_scale=nan"));
    if (one_in(c, 8))
        add(c, "run.memory_limit", "%s",
            one_in(c, 2) ? "1GiB" : WORD(c, "1", "x", "1e400", "-1GB", "nanMB"));
    if (one_in(c, 6))
        add(c, "run.overlap", "%s", WORD(c, "true", "false"));
    if (one_in(c, 8))
        add(c, "run.pace", "%s", one_in(c, 2) ? "F=1,B=2" : WORD(c, "F=", "Q=1", "F=-1", "F=nan"));
    if (one_in(c, 8))
        add(c, "generate.batch", "%lld", (long long)(1 + below(c, 5)));
}

/* Settings that name files, open devices or would take their time to compile have values of their
 * own above. */
static bool may_be_anything(const char *name)
{
    static const char *const not [] = {
        "run.device",       "model.from",      "data.source",  "data.tokenizer",
        "run.dir",          "layout.schedule", "ckpt.from",    "layout.microbatches",
        "model.num_layers", "run.threads",     "model.preset", "layout.pp"};
    for (size_t i = 0; i < sizeof not / sizeof *not ; i++)
        if (strcmp(name, not [i]) == 0)
            return false;
    return true;
}

/* Any setting of the table, at its bounds, beyond them, or anywhere between. */
static void add_anything(random_case *c)
{
    tri_table table;
    tri_table_init(&table, NULL);
    const tri_setting *row = table.row[below(c, table.num)];
    if (!may_be_anything(row->name))
        return;
    switch (row->type) {
    case TRI_SETTING_BOOL:
        add(c, row->name, "%s",
            WORD(c, "true", "false", "true", "false", one_in(c, 9) ? "maybe" : "yes"));
        return;
    case TRI_SETTING_CHOICE: {
        const char *choice = row->choices;
        for (int64_t skip = below(c, 5); skip > 0 && strchr(choice, ','); skip--)
            choice = strchr(choice, ',') + 2;
        add(c, row->name, "%.*s", (int)strcspn(choice, ","), choice);
        return;
    }
    case TRI_SETTING_STRING:
        add(c, row->name, "%s", WORD(c, "", "x", "1", "a,b", "%s", "\xff", "a;b", "=:"));
        return;
    default:
        break;
    }
    double low = row->min, high = row->max, span = high - low;
    double value =
        one_in(c, 4)   ? low
        : one_in(c, 4) ? high
        : one_in(c, 8) ? high + 1
        : one_in(c, 2)
            ? low + span * ldexp((double)(next(c) >> 11), -53)
            : low + exp2(ldexp((double)(next(c) >> 11), -53) * log2(span > 1 ? span : 2));
    if (row->type == TRI_SETTING_INT)
        add(c, row->name, "%.0f", floor(value));
    else
        add(c, row->name, "%.17g", value);
}

static void make_case(random_case *c, uint64_t seed, uint64_t number)
{
    *c = (random_case){.state = seed * 1000003 + number};
    next(c);
    add(c, "run.device", "%s", WORD(c, "null", "null", "cpu"));
    add(c, "run.threads", "1");
    add_model(c);
    add_layout(c);
    add_rest(c);
    for (int64_t more = one_in(c, 2) ? 0 : 1 + below(c, 3); more > 0; more--)
        add_anything(c);
}

static const char *show(const random_case *c)
{
    static char text[MAX_SET * (MAX_TEXT + 8)];
    size_t used = 0;
    text[0] = 0;
    for (int i = 0; i < c->num; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, " --set '%s'", c->text[i]);
    return text;
}

static void expect_proper(const random_case *c, tr_status status, const tr_error *err)
{
    if (status == TR_OK || (status == TR_ERROR_INPUT && strlen(err->message) > 10))
        return;
    fail_msg("%s: %s\n  %s", tr_status_name(status), err->message, show(c));
}

/* What `plan` and `check` say of one rank's programs. */
static tr_status prove(const tri_session *session, tr_error *err)
{
    for (int p = 0; p < TRI_NUM_PROGRAMS; p++)
        if (tri_session_has(session, p))
            TRI_TRY(tri_program_check(&session->programs[p], err));
    const tri_program *train = &session->programs[TRI_PROGRAM_TRAIN];
    if (!tri_session_has(session, TRI_PROGRAM_TRAIN))
        return TR_OK;
    tri_ledger ledger;
    tri_text text;
    TRI_TRY(tri_ledger_make(train, &ledger, err));
    tri_text_init(&text);
    tri_ledger_text(&ledger, &text);
    tri_program_redone_text(train, &text);
    assert_false(text.failed);
    tri_text_fini(&text);
    tri_ledger_fini(&ledger);
    return tri_session_check_memory(session, err);
}

static tr_status prove_all(tr_settings *settings, int ranks, tr_error *err)
{
    tr_session *sessions[MATCHED_RANKS] = {0};
    const tri_program *programs[MATCHED_RANKS];
    tr_status status = TR_OK;
    for (int r = 0; r < ranks && status == TR_OK; r++) {
        status = tri_api_compile(settings, r, &sessions[r], err);
        if (status == TR_OK)
            status = prove(&sessions[r]->session, err);
    }
    for (int p = TRI_PROGRAM_TRAIN; p <= TRI_PROGRAM_EVAL && status == TR_OK; p++) {
        for (int r = 0; r < ranks; r++)
            programs[r] = &sessions[r]->session.programs[p];
        status = tri_programs_match(programs, ranks, err);
    }
    for (int r = 0; r < ranks; r++)
        tr_session_destroy(sessions[r]);
    return status;
}

static tr_status try_case(const random_case *c, tr_settings *settings, tr_error *err)
{
    for (int i = 0; i < c->num; i++)
        TRI_TRY(tr_settings_set(settings, c->text[i], err));
    TRI_TRY(tri_api_check(settings, err));
    tr_session *session;
    TRI_TRY(tri_api_compile(settings, 0, &session, err));
    int ranks = tri_mesh_ranks(&session->session.config.compile.mesh);
    bool generates = tri_model_generates(&session->session.config.compile.model);
    tr_status status = prove(&session->session, err);
    tr_session_destroy(session);
    TRI_TRY(status);
    if (ranks > 1 && ranks <= MATCHED_RANKS)
        TRI_TRY(prove_all(settings, ranks, err));
    if (!generates)
        return TR_OK;
    TRI_TRY(tri_api_compile_programs(settings, 0, TRI_PROGRAMS_GENERATE, NULL, &session, err));
    status = prove(&session->session, err);
    tr_session_destroy(session);
    return status;
}

static uint64_t number_from(const char *name, uint64_t fallback)
{
    const char *text = getenv(name);
    return text && *text ? strtoull(text, NULL, 10) : fallback;
}

static void any_settings_work_or_are_refused(void **state)
{
    (void)state;
    uint64_t seed = number_from("TRIREME_RANDOM_SEED", 1);
    uint64_t num = number_from("TRIREME_RANDOM_CASES", getenv("TRIREME_TEST_FULL") ? 20000 : CASES);
    uint64_t only = number_from("TRIREME_RANDOM_CASE", UINT64_MAX);
    bool shows = getenv("TRIREME_RANDOM_SHOW") != NULL;
    uint64_t num_good = 0, slowest = 0;
    uint64_t most_ns = 0;
    for (uint64_t i = only != UINT64_MAX ? only : 0; i < (only != UINT64_MAX ? only + 1 : num);
         i++) {
        random_case c;
        tr_settings *settings;
        tr_error err = {0};
        make_case(&c, seed, i);
        if (only != UINT64_MAX || shows)
            print_message("case %llu:%s\n", (unsigned long long)i, show(&c));
        uint64_t begin = tri_now_ns();
        assert_int_equal(tr_settings_create(&settings, &err), TR_OK);
        tr_status status = try_case(&c, settings, &err);
        if (only != UINT64_MAX)
            print_message("%s: %s\n", tr_status_name(status), err.message);
        expect_proper(&c, status, &err);
        tr_settings_destroy(settings);
        num_good += status == TR_OK;
        if (tri_now_ns() - begin > most_ns) {
            most_ns = tri_now_ns() - begin;
            slowest = i;
        }
    }
    print_message(
        "seed %llu: %llu of %llu settings compile, the others are refused; case %llu took "
        "longest, %.2f s\n",
        (unsigned long long)seed, (unsigned long long)num_good, (unsigned long long)num,
        (unsigned long long)slowest, 1e-9 * (double)most_ns);
    if (only == UINT64_MAX && num >= CASES)
        assert_in_range(num_good, num / 5, num - num / 5); /* both happen */
}

/* Refused by name, where the compiled program used to be wrong. */
static void key_heads_belong_to_llama(void **state)
{
    (void)state;
    static const char *const kinds[] = {"model.kind=gpt2", "model.kind=bert", "model.kind=mlp"};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        tr_error err = {0};
        tr_session *session = NULL;
        tr_settings *settings =
            settings_of(TINY, SET(kinds[i], "model.num_kv_heads=1", "layout.tp=2"));
        assert_int_equal(tri_api_compile(settings, 0, &session, &err), TR_ERROR_INPUT);
        assert_non_null(strstr(err.message, "model.num_kv_heads"));
        tr_settings_destroy(settings);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(key_heads_belong_to_llama),
        cmocka_unit_test(any_settings_work_or_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
