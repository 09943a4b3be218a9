/* Context parallelism, known before it runs: what a layer sends over cp, by formulas, and what a
 * rank keeps for its backward.
 *
 * D is the width of all queries, g that of keys for each of theirs (key heads / heads), S the
 * tokens of a micro-batch. */
#include "small_models.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "kept_bytes.h"

enum { HEADS = 8, HEAD_WIDTH = 8, WIDTH = HEADS * HEAD_WIDTH, ROWS = 3, LENGTH = 48 };
enum { LAYERS = 2, LONG = 8192 }; /* where memory counts */

typedef struct received {
    double forward, backward; /* elements that come from other ranks, of one layer */
} received;

static bool is_over_cp(const tri_program *program, const tri_message *message)
{
    return message->group != TRI_NONE &&
           strncmp(program->groups[message->group].name, "cp", 2) == 0;
}

/* Of a message, what a rank gets of others' when all have equally much. Gradients of weights are
 * reduced, and are not meant. */
static double elements_from_others(const tri_program *program, const tri_message *message)
{
    double element = (double)tri_dtype_bytes(message->dtype);
    double members = program->groups[message->group].size;
    double got = (double)message->recv.bytes / element, all = (double)message->elements;
    switch (message->kind) {
    case TRI_MESSAGE_SHIFT:
        return got;
    case TRI_MESSAGE_ALL_GATHER:
    case TRI_MESSAGE_REDUCE_SCATTER:
        return all * (members - 1) / members;
    case TRI_MESSAGE_ALL_TO_ALL:
        return got * (members - 1) / members;
    default:
        return 0;
    }
}

static received received_by(const tri_program *program)
{
    received sum = {0};
    for (size_t s = 0; s < program->num_segments; s++) {
        const tri_segment *segment = &program->segments[s];
        for (uint32_t i = segment->first; i < segment->first + segment->count; i++) {
            const tri_instr *instr = &program->instrs[i];
            if (instr->message == TRI_NONE || !tri_instr_leads(program, i) || instr->layer != 0)
                continue;
            const tri_message *message = &program->messages[instr->message];
            if (is_over_cp(program, message))
                *(kept_is_forward(segment) ? &sum.forward : &sum.backward) +=
                    elements_from_others(program, message);
        }
    }
    return sum;
}

#define LLAMA_OF(keys)                                                                             \
    "run.device=null", "model.kind=llama", "model.num_layers=1", "model.dim=64",                   \
        "model.num_heads=8", "model.ffn_dim=96", "model.vocab=128", "model.dropout=0",             \
        "layout.recompute=none", keys

static received received_with(int key_heads, int cp, int cp_heads, const char *kind, int rank)
{
    char words[6][40];
    tr_error err = {0};
    tr_session *session;
    snprintf(words[0], sizeof words[0], "model.num_kv_heads=%d", key_heads);
    snprintf(words[1], sizeof words[1], "layout.cp=%d", cp);
    snprintf(words[2], sizeof words[2], "layout.cp_heads=%d", cp_heads);
    snprintf(words[3], sizeof words[3], "layout.cp_kind=%s", kind);
    snprintf(words[4], sizeof words[4], "train.batch=%d", ROWS);
    snprintf(words[5], sizeof words[5], "data.seq_len=%d", LENGTH);
    tr_settings *settings = settings_of(
        NULL, SET(LLAMA_OF(words[0]), words[1], words[2], words[3], words[4], words[5]));
    if (tri_api_compile(settings, rank, &session, &err) != TR_OK)
        fail_msg("%s", err.message);
    received sum = received_by(&session->session.programs[TRI_PROGRAM_TRAIN]);
    tr_session_destroy(session);
    tr_settings_destroy(settings);
    return sum;
}

static void expect_received(int key_heads, int cp, int cp_heads, const char *kind, received want)
{
    for (int rank = 0; rank < cp; rank++) {
        received is = received_with(key_heads, cp, cp_heads, kind, rank);
        if (is.forward != want.forward || is.backward != want.backward)
            fail_msg("%s, %d key heads, rank %d of cp %d with cp_heads %d: %g elements in the "
                     "forward and %g in the backward, not %g and %g",
                     kind, key_heads, rank, cp, cp_heads, is.forward, is.backward, want.forward,
                     want.backward);
    }
}

/* Keys and values of all tokens, once; in the backward again, with as many gradients. */
static void test_keys_that_come(void **state)
{
    (void)state;
    for (int keys = 1; keys <= HEADS; keys *= 2)
        for (int cp = 2; cp <= 4; cp++) {
            double g = (double)keys / HEADS, others = (cp - 1.0) / cp;
            double once = 2 * g * WIDTH * ROWS * LENGTH * others;
            expect_received(keys, cp, 1, "ring", (received){once, 2 * once});
            expect_received(keys, cp, 1, "gather", (received){once, 2 * once});
        }
}

/* Queries, keys and values go to heads, and results come back; in the backward gradients of results
 * go, and those of queries, keys and values come. Nothing is exchanged again: all have at heads
 * what they had. Where ranks share a key head (`copies` of them), these gather their tokens of all
 * heads first; that is more than their share of what is there, and so it is not kept, and comes
 * again. */
typedef struct exchange {
    double queries, keys; /* and results; and values */
    bool gathered;
} exchange;

static exchange exchange_of(int keys, int ranks, double tokens)
{
    double g = (double)keys / HEADS, own = tokens / ranks;
    int copies = ranks > keys ? ranks / keys : 1, parts = ranks / copies;
    double gathered = 2 * g * WIDTH * own * (copies - 1);
    return (exchange){.queries = 2 * WIDTH * own * (ranks - 1) / ranks,
                      .keys = gathered + 2 * g * WIDTH * own * copies * (parts - 1) / parts,
                      .gathered = copies > 1};
}

static received received_in(exchange e)
{
    return (received){e.queries + e.keys, e.queries + (e.gathered ? 2 : 1) * e.keys};
}

static void test_tokens_for_heads(void **state)
{
    (void)state;
    for (int keys = 1; keys <= HEADS; keys *= 2)
        for (int cp = 2; cp <= HEADS; cp *= 2) {
            exchange each = exchange_of(keys, cp, ROWS * LENGTH);
            double g = (double)keys / HEADS, tokens = ROWS * LENGTH;
            if (keys >= cp)
                assert_true(each.queries + each.keys ==
                            (2 + 2 * g) * WIDTH * tokens / cp * (cp - 1) / cp);
            expect_received(keys, cp, 1, "ulysses", received_in(each));
        }
}

/* Pairs exchange the tokens of both for heads, and what is left passes between pairs: keys of half
 * the heads, or of the one that the two share. */
static void test_pairs(void **state)
{
    (void)state;
    for (int keys = 1; keys <= HEADS; keys *= 2)
        for (int cp = 4; cp <= 8; cp += 4) {
            int between = cp / 2;
            double tokens = (double)ROWS * LENGTH, g = (double)keys / HEADS;
            received want = received_in(exchange_of(keys, 2, tokens / between));
            double own = keys >= 2 ? g / 2 : g;
            double once = 2 * own * WIDTH * tokens * (between - 1) / between;
            want.forward += once;
            want.backward += 2 * once;
            expect_received(keys, cp, 2, "ring", want);
            expect_received(keys, cp, 2, "gather", want);
        }
}

/* --- Memory ----------------------------------------------------------------------------------- */

static double kept_with(const char *model, const char *kind, int cp)
{
    char words[5][40];
    snprintf(words[3], sizeof words[3], "model.num_layers=%d", LAYERS);
    snprintf(words[4], sizeof words[4], "data.seq_len=%d", LONG);
    snprintf(words[0], sizeof words[0], "model.kind=%s", model);
    snprintf(words[1], sizeof words[1], "layout.cp_kind=%s", kind);
    snprintf(words[2], sizeof words[2], "layout.cp=%d", cp);
    tr_settings *settings =
        settings_of(NULL, SET("run.device=null", words[0], words[1], words[2], words[3], words[4],
                              "model.dim=64", "model.num_heads=8", "model.vocab=128",
                              "train.batch=1", "layout.recompute=none"));
    tr_session *session = compiled(settings);
    double bytes = (double)kept_bytes(&session->session.programs[TRI_PROGRAM_TRAIN]);
    tr_session_destroy(session);
    tr_settings_destroy(settings);
    return bytes;
}

/* What is kept of a long row is divided by the number of ranks. Where tokens go for heads, results
 * of attention are kept twice: at heads, for the backward of attention, and at tokens, for that of
 * the product behind it. */
static void test_kept_activations(void **state)
{
    (void)state;
    static const char *const models[] = {"gpt2", "llama", "bert"};
    static const char *const kinds[] = {"ring", "gather", "ulysses"};
    for (size_t m = 0; m < 3; m++) {
        double whole = kept_with(models[m], "ring", 1);
        for (size_t k = 0; k < 3; k++)
            for (int cp = 2; cp <= 4; cp += 2) {
                double results = (double)LAYERS * LONG * WIDTH * sizeof(float);
                double want = (whole + (k == 2 ? results : 0)) / cp;
                double kept = kept_with(models[m], kinds[k], cp);
                if (fabs(kept / want - 1) > 0.01)
                    fail_msg("%s, %s: a rank of %d keeps %.4f of what one alone does, not %.4f",
                             models[m], kinds[k], cp, kept / whole, want / whole);
            }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_keys_that_come),
        cmocka_unit_test(test_tokens_for_heads),
        cmocka_unit_test(test_pairs),
        cmocka_unit_test(test_kept_activations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
