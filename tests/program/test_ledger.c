/* The ledger: every byte that is kept for the backward has a line, and the account with the
 * textbook comes out even. */
#include "small_models.h"

#include "kept_bytes.h"

#include <string.h>

#include "program/ledger.h"

typedef struct ledger_of {
    tr_settings *settings;
    tr_session *session;
    const tri_program *program;
    tri_ledger ledger;
} ledger_of;

static ledger_of make(const char *const *assignments)
{
    tr_error err = {0};
    ledger_of l = {.settings = settings_of(NULL, assignments)};
    l.session = compiled(l.settings);
    l.program = &l.session->session.programs[TRI_PROGRAM_TRAIN];
    if (tri_ledger_make(l.program, &l.ledger, &err) != TR_OK)
        fail_msg("%s", err.message);
    return l;
}

static void unmake(ledger_of *l)
{
    tri_ledger_fini(&l->ledger);
    tr_session_destroy(l->session);
    tr_settings_destroy(l->settings);
}

static void expect_even(const ledger_of *l)
{
    uint64_t sum = 0, entries = 0;
    assert_int_equal(l->ledger.kept, kept_bytes(l->program));
    for (int i = 0; i < l->ledger.num_layers + 2; i++) {
        const tri_ledger_layer *layer = &l->ledger.layers[i];
        sum += layer->kept;
        assert_int_equal(tri_ledger_book_total(layer) - tri_ledger_missing(layer) +
                             tri_ledger_extra(layer),
                         layer->kept);
    }
    assert_int_equal(sum, l->ledger.kept);
    for (size_t e = 0; e < l->ledger.num_entries; e++)
        entries += l->ledger.entries[e].room;
    assert_int_equal(entries, l->ledger.kept);
}

enum { B = 4, S = 128, H = 256, A = 8 };
#define GPT                                                                                        \
    "run.device=null", "model.num_layers=3", "model.dim=256", "model.num_heads=8",                 \
        "model.vocab=512", "train.batch=4", "data.seq_len=128"

/* sbh(34 + 5 as/h); over tp, what lies between the blocks is divided only with sp. */
static void test_textbook(void **state)
{
    (void)state;
    const uint64_t sbh = (uint64_t)S * B * H, scores = (uint64_t)A * B * S * S;
    static const char *const drop[] = {"model.dropout=0", "model.dropout=0.1"};
    for (int d = 0; d < 2; d++)
        for (int tp = 1; tp <= 2; tp++)
            for (int sp = 0; sp < tp; sp++) {
                ledger_of l = make(SET(GPT, "precision.kind=bf16", drop[d],
                                       tp == 2 ? "layout.tp=2" : "layout.tp=1",
                                       sp ? "layout.sp=true" : "layout.sp=false"));
                uint64_t want = tp == 1 ? 34 * sbh + 5 * scores
                                : sp    ? (34 * sbh + 5 * scores) / 2
                                        : 10 * sbh + 24 * sbh / 2 + 5 * scores / 2;
                for (int i = 1; i <= 3; i++) {
                    const tri_ledger_layer *layer = &l.ledger.layers[i];
                    assert_true(layer->has_book);
                    assert_int_equal(tri_ledger_book_total(layer), want);
                    /* Scores and masks are all that is not stored. */
                    uint64_t masks = 2 * sbh / (sp ? 2 : 1);
                    assert_int_equal(tri_ledger_missing(layer), masks + 5 * scores / (uint64_t)tp);
                    /* Beyond: log-sums, statistics of two norms, and with sp two whole inputs. */
                    uint64_t beyond = (uint64_t)4 * A * B * S / (uint64_t)tp +
                                      (uint64_t)2 * 8 * B * S / (sp ? 2 : 1) + (sp ? 2 * sbh : 0);
                    assert_int_equal(tri_ledger_extra(layer), beyond);
                }
                expect_even(&l);
                unmake(&l);
            }
}

/* Whatever the model, the layout and the mode. */
static void test_accounts_are_even(void **state)
{
    (void)state;
    static const char *const kinds[] = {"model.kind=gpt2", "model.kind=llama", "model.kind=bert",
                                        "model.kind=mlp"};
    static const char *const layouts[] = {"layout.microbatches=2", "layout.tp=2",
                                          "layout.split_backward=true"};
    static const char *const redo[] = {"layout.recompute=none", "layout.recompute=selective",
                                       "layout.recompute=full", "layout.recompute=every:2"};
    for (int k = 0; k < 4; k++)
        for (int y = 0; y < 3; y++)
            for (int r = 0; r < 4; r++)
                for (int narrow = 0; narrow < 2; narrow++) {
                    if (k == 3 && y == 1)
                        continue; /* an mlp has nothing for tp to divide */
                    ledger_of l =
                        make(SET(GPT, "model.vocab=301", "data.seq_len=37", kinds[k], layouts[y],
                                 redo[r], narrow ? "precision.kind=bf16" : "precision.kind=fp32"));
                    expect_even(&l);
                    assert_int_equal(l.ledger.layers[1].has_book, k < 3);
                    assert_int_equal(l.ledger.layers[1].redone, r > 0 && (r > 1 || k < 3));
                    unmake(&l);
                }
}

/* Made again: only the input of a layer is kept. */
static void test_full_keeps_one_item(void **state)
{
    (void)state;
    ledger_of l = make(SET(GPT, "precision.kind=bf16", "layout.recompute=full"));
    for (int i = 1; i <= 3; i++)
        for (tri_book book = 0; book < TRI_NUM_BOOK; book++)
            assert_int_equal(l.ledger.layers[i].stored[book],
                             book == TRI_BOOK_NORM_1 ? 2 * S * B * H : 0);
    unmake(&l);
}

/* GPT-3: 2.869 GB a layer and 275.4 GB in all by the textbook; inputs alone take 4.83 GB. */
static void test_gpt3(void **state)
{
    (void)state;
    ledger_of l = make(SET("run.device=null", "model.preset=gpt3-175b", "data.seq_len=2048",
                           "train.batch=1", "precision.kind=bf16", "layout.recompute=full"));
    uint64_t book = 0, inputs = 0;
    for (int i = 1; i <= 96; i++) {
        book += tri_ledger_book_total(&l.ledger.layers[i]);
        inputs += l.ledger.layers[i].stored[TRI_BOOK_NORM_1];
        assert_int_equal(tri_ledger_book_total(&l.ledger.layers[i]), 2868903936);
    }
    assert_int_equal(book / 100000000, 2754);
    assert_int_equal(inputs / 10000000, 483);
    expect_even(&l);
    unmake(&l);
}

static void test_text(void **state)
{
    (void)state;
    ledger_of l = make(SET(GPT, "precision.kind=bf16", "model.dropout=0.1"));
    tri_text text;
    tri_text_init(&text);
    tri_ledger_text(&l.ledger, &text);
    assert_non_null(strstr(text.chars, "34 s*b*h + 5 a*b*s^2 = 7077888 bytes"));
    assert_non_null(strstr(text.chars, "layers 1 to 2: the same each"));
    assert_non_null(strstr(text.chars, "masks are made again from the random stream"));
    tri_text_fini(&text);
    unmake(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_textbook),
        cmocka_unit_test(test_accounts_are_even),
        cmocka_unit_test(test_full_keeps_one_item),
        cmocka_unit_test(test_gpt3),
        cmocka_unit_test(test_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
