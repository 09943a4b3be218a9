/* The choice of tokens: probabilities against those computed here by the definitions, and draws
 * against the probabilities. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "serve/sample.h"

enum { VOCAB = 11, MOST = 5000 };

static const float logits[VOCAB] = {0.3f,  -1.5f, 2.1f, 2.1f, -0.2f, 1.4f,
                                    -4.0f, 0.0f,  1.9f, 0.7f, -2.2f};
static const uint8_t seen[VOCAB] = {0, 1, 1, 0, 0, 0, 1, 0, 1, 0, 0};

static tri_sampling plain(double temperature)
{
    return (tri_sampling){
        .temperature = temperature, .top_p = 1, .repetition_penalty = 1, .seed = 5};
}

/* By the definitions, one token after the other. */
static void expected(const tri_sampling *s, const uint8_t *occurred, double *p)
{
    double logit[VOCAB], sum = 0;
    for (int v = 0; v < VOCAB; v++) {
        logit[v] = logits[v];
        if (occurred && occurred[v])
            logit[v] =
                logit[v] > 0 ? logit[v] / s->repetition_penalty : logit[v] * s->repetition_penalty;
        logit[v] /= s->temperature;
    }
    for (int v = 0; v < VOCAB; v++)
        sum += p[v] = exp(logit[v]);
    bool kept[VOCAB];
    for (int v = 0; v < VOCAB; v++) {
        int larger = 0;
        for (int w = 0; w < VOCAB; w++)
            larger += p[w] > p[v];
        kept[v] = s->top_k == 0 || larger < s->top_k; /* equals stay together */
    }
    sum = 0;
    for (int v = 0; v < VOCAB; v++)
        sum += p[v] = kept[v] ? p[v] : 0;
    for (int v = 0; v < VOCAB;
         v++) { /* top_p: what is heavier, or equal and earlier, comes first */
        double before = 0;
        for (int w = 0; w < VOCAB; w++)
            before += p[w] > p[v] || (p[w] == p[v] && w < v) ? p[w] / sum : 0;
        kept[v] = kept[v] && (before < s->top_p || before == 0);
    }
    double most = 0;
    for (int v = 0; v < VOCAB; v++)
        most = fmax(most, p[v]);
    sum = 0;
    for (int v = 0; v < VOCAB; v++)
        sum += p[v] = kept[v] && p[v] >= s->min_p * most ? p[v] : 0;
    for (int v = 0; v < VOCAB; v++)
        p[v] /= sum;
}

static void check(const tri_sampling *s, const uint8_t *occurred)
{
    double want[VOCAB], got[VOCAB];
    char scratch[MOST];
    assert_true(tri_sample_scratch_bytes(VOCAB) <= sizeof scratch);
    expected(s, occurred, want);
    tri_sample_probabilities(logits, VOCAB, s, occurred, got, scratch);
    for (int v = 0; v < VOCAB; v++)
        if (fabs(want[v] - got[v]) > 1e-6)
            fail_msg("temperature %g, top_k %d, top_p %g, min_p %g, penalty %g: token %d has %g, "
                     "not %g",
                     s->temperature, (int)s->top_k, s->top_p, s->min_p, s->repetition_penalty, v,
                     got[v], want[v]);
    /* And they are drawn as often as they should be. */
    enum { DRAWS = 4000 };
    int count[VOCAB] = {0};
    for (int i = 0; i < DRAWS; i++)
        count[tri_sample(logits, VOCAB, s, occurred, 9, (uint64_t)i, scratch)]++;
    for (int v = 0; v < VOCAB; v++) {
        double deviation = sqrt(DRAWS * want[v] * (1 - want[v]));
        if (fabs(count[v] - DRAWS * want[v]) > 5 * deviation + 1e-9)
            fail_msg("token %d was drawn %d times of %d with probability %g", v, count[v], DRAWS,
                     want[v]);
    }
}

static void test_probabilities(void **state)
{
    (void)state;
    for (double temperature = 0.3; temperature < 3; temperature *= 2.1)
        for (int64_t top_k = 0; top_k <= VOCAB + 1; top_k += 1 + top_k / 3)
            for (int p = 0; p < 5; p++)
                for (int m = 0; m < 3; m++) {
                    tri_sampling s = plain(temperature);
                    s.top_k = top_k;
                    s.top_p = (double[]){1, 0.93, 0.61, 0.2, 0}[p];
                    s.min_p = (double[]){0, 0.11, 0.77}[m];
                    check(&s, NULL);
                    s.repetition_penalty = 1.7;
                    check(&s, seen);
                    s.repetition_penalty = 0.6;
                    check(&s, seen);
                }
}

static void test_greedy(void **state)
{
    (void)state;
    char scratch[MOST];
    tri_sampling s = plain(0);
    for (uint64_t draw = 0; draw < 20; draw++)
        assert_int_equal(tri_sample(logits, VOCAB, &s, NULL, 0, draw, scratch), 2);
    s.repetition_penalty = 2; /* 2 and 8 have occurred, 3 has not */
    assert_int_equal(tri_sample(logits, VOCAB, &s, seen, 0, 0, scratch), 3);
    s = plain(1);
    s.top_k = 1; /* of 2 and 3, which are equal, both stay */
    int count[VOCAB] = {0};
    for (uint64_t draw = 0; draw < 200; draw++)
        count[tri_sample(logits, VOCAB, &s, NULL, 0, draw, scratch)]++;
    assert_true(count[2] > 50 && count[3] > 50 && count[2] + count[3] == 200);
}

/* The draw depends on seed, text and number, and on nothing else. */
static void test_streams(void **state)
{
    (void)state;
    char scratch[MOST];
    tri_sampling s = plain(2);
    int32_t first[3][64];
    for (int kind = 0; kind < 3; kind++)
        for (int i = 0; i < 64; i++) {
            s.seed = kind == 1 ? 6 : 5;
            first[kind][i] =
                tri_sample(logits, VOCAB, &s, NULL, kind == 2 ? 1 : 0, (uint64_t)i, scratch);
        }
    s.seed = 5;
    for (int i = 63; i >= 0; i--)
        assert_int_equal(tri_sample(logits, VOCAB, &s, NULL, 0, (uint64_t)i, scratch), first[0][i]);
    assert_memory_not_equal(first[0], first[1], sizeof first[0]);
    assert_memory_not_equal(first[0], first[2], sizeof first[0]);
}

/* Numbers that are none must not lead out of the vocabulary. */
static void test_broken_logits(void **state)
{
    (void)state;
    char scratch[MOST];
    float broken[4][VOCAB];
    for (int v = 0; v < VOCAB; v++) {
        broken[0][v] = NAN;
        broken[1][v] = -INFINITY;
        broken[2][v] = INFINITY;
        broken[3][v] = v == 4 ? 1.0f : NAN;
    }
    for (int kind = 0; kind < 4; kind++)
        for (int way = 0; way < 4; way++) {
            tri_sampling s = plain(way == 0 ? 0 : 0.7);
            s.top_k = way == 2 ? 3 : 0;
            s.top_p = way == 3 ? 0.5 : 1;
            int32_t token = tri_sample(broken[kind], VOCAB, &s, seen, 0, 1, scratch);
            assert_true(token >= 0 && token < VOCAB);
        }
    tri_sampling greedy = plain(0);
    assert_int_equal(tri_sample(broken[3], VOCAB, &greedy, NULL, 0, 0, scratch), 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_probabilities),
        cmocka_unit_test(test_greedy),
        cmocka_unit_test(test_streams),
        cmocka_unit_test(test_broken_logits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
