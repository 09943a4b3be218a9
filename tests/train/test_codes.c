/* States that rest in codes: the codes themselves, the kernel against a plain loop, memory, and
 * training with moments of 8 bits beside fp32. Resuming is in tests/ckpt/test_resume.sh. */
#include "small_models.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/block8.h"
#include "base/rng.h"
#include "graph/code.h"
#include "op_cases.h"

enum { BLOCK = 256, BYTES = 260 };

/* --- Codes ---------------------------------------------------------------------------------- */

static void expect_fixed(const tri_code *code, const unsigned char *bytes, int64_t count)
{
    float x[BLOCK];
    unsigned char again[BYTES];
    code->decode(bytes, count, x);
    code->encode(x, count, again);
    assert_memory_equal(bytes, again, BYTES);
}

/* Every code, at scales that are no powers of two, at the smallest and large ones. */
static void test_every_code_is_its_own(void **state)
{
    (void)state;
    static const float scales[] = {1, 0.3f, 1.7e-3f, 0x1p-100f, 0x1.fffffep-70f, 3e30f, 0x1p127f};
    for (int s = 0; s < 2; s++) {
        const tri_code *code = tri_dtype_code(s ? TRI_Q8S : TRI_Q8U);
        for (size_t k = 0; k < sizeof scales / sizeof *scales; k++) {
            unsigned char bytes[BYTES];
            float x[BLOCK];
            for (int i = 0; i < BLOCK; i++)
                bytes[i] = (unsigned char)(s && i == 128 ? 0 : i); /* there is no -0 */
            memcpy(bytes + BLOCK, &scales[k], 4);
            expect_fixed(code, bytes, BLOCK);
            code->decode(bytes, BLOCK, x);
            assert_true(x[s ? 127 : 255] == scales[k] && x[0] == 0);
            for (int i = 2; i < (s ? 128 : 256); i++) { /* an eighth apart at most */
                assert_true(x[i] > x[i - 1]);
                assert_true(i == 1 || x[i] <= x[i - 1] * 1.1251f);
            }
        }
    }
}

/* Numbers over many sizes: near what they were, and encoded twice the same. */
static void test_blocks_are_encoded_once(void **state)
{
    (void)state;
    float x[BLOCK], y[BLOCK];
    unsigned char bytes[BYTES];
    for (int round = 0; round < 400; round++) {
        const tri_code *code = tri_dtype_code(round % 2 ? TRI_Q8S : TRI_Q8U);
        int64_t count = round % 5 ? BLOCK : 1 + round % BLOCK;
        float most = 0;
        tri_random_normal(7, (uint64_t)round * BLOCK, BLOCK, 0, 1, x);
        for (int64_t i = 0; i < count; i++) {
            x[i] *= exp2f((float)(i * round % 40) * -0.7f - (float)(round % 60));
            x[i] = round % 2 ? x[i] : fabsf(x[i]);
            x[i] = i % 31 == 5 ? 0 : x[i];
            most = fmaxf(most, fabsf(x[i]));
        }
        code->encode(x, count, bytes);
        expect_fixed(code, bytes, count);
        code->decode(bytes, count, y);
        float least = most * (round % 2 ? 0x1p-15f : 0x1p-31f);
        for (int64_t i = 0; i < count; i++) {
            assert_true(fabsf(y[i] - x[i]) <= fabsf(x[i]) / 16 + least);
            assert_true(x[i] != 0 || y[i] == 0);
            assert_true(round % 2 || x[i] == 0 || y[i] > 0); /* nothing is divided by 0 later */
        }
        for (int64_t i = count; i < BLOCK; i++)
            assert_int_equal(bytes[i], 0);
    }
    for (int i = 0; i < BLOCK; i++)
        x[i] = 1e-38f; /* too small to matter */
    memset(y, 1, sizeof y);
    tri_dtype_code(TRI_Q8U)->encode(x, BLOCK, bytes);
    tri_dtype_code(TRI_Q8U)->decode(bytes, BLOCK, y);
    for (int i = 0; i < BLOCK; i++)
        assert_true(y[i] == 0);
}

/* The largest of a block is the last code, whatever is added: a block keeps its scale. */
static void test_the_largest_is_the_last(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < 20000; i++) {
        float x = tri_f32_of(0x20000000u + tri_random_word(9, i, 0, 0) % 0x40000000u);
        assert_int_equal(tri_block8_code(true, x, x, 0), 127);
        assert_int_equal(tri_block8_code(true, -x, x, 0xfffff), 255);
        assert_int_equal(tri_block8_code(false, x, x, 0), 255);
    }
}

/* Rounded at random, a number is itself in the mean: a small change is not lost. */
static void test_rounding_has_the_right_mean(void **state)
{
    (void)state;
    static const float numbers[] = {0.999f, 0.51f, 0.07f, 1.3e-3f, 0.1876f};
    enum { TRIES = 20000 };
    for (size_t k = 0; k < sizeof numbers / sizeof *numbers; k++) {
        double sum = 0;
        for (uint32_t key = 0; key < TRIES; key++) {
            float x = numbers[k];
            uint8_t code = tri_block8_code(true, x, 1, tri_block8_random(x, key * 0x27d4eb2fu));
            sum += (double)tri_block8_wide(true, code, 1);
        }
        assert_true(fabs(sum / TRIES / (double)numbers[k] - 1) < 2e-3);
    }
}

/* --- The kernel ----------------------------------------------------------------------------- */

/* The numbers that codes stand for, written out. */
static float number_of(bool is_signed, int code)
{
    int size = is_signed ? code & 127 : code, last = is_signed ? 127 : 255;
    int octave = (last - size + 7) / 8, eighth = size - (last - octave * 8);
    float x = size == 0 ? 0 : ldexpf(1 + (float)eighth / 8, -octave);
    return is_signed && code > 127 ? -x : x;
}

/* The two neighbours of a number, and which of them a random number chooses. */
static uint8_t code_of(bool is_signed, float ratio, uint32_t random)
{
    int last = is_signed ? 127 : 255, low = 0;
    float size = fabsf(ratio);
    while (low < last && number_of(is_signed, low + 1) <= size)
        low++;
    int code = low;
    if (low > 0 && low < last) {
        float below = number_of(is_signed, low), above = number_of(is_signed, low + 1);
        if ((double)(size - below) / (double)(above - below) * 0x1p20 + random >= 0x1p20)
            code = low + 1;
    } else if (low == 0) { /* below the first, only what is a hair's breadth away reaches it */
        float first = number_of(is_signed, 1);
        bool reaches = (tri_bits_of(size) + random) >> 20 >= tri_bits_of(first) >> 20;
        code = reaches || (!is_signed && size > 0) ? 1 : 0;
    }
    return (uint8_t)(is_signed && code && ratio < 0 ? code + 128 : code);
}

typedef struct plain {
    float *p, *m, *v;
    unsigned char *m8, *v8;
} plain;

static void plain_encode(bool is_signed, const float *x, int64_t num, uint32_t key,
                         unsigned char *to)
{
    float most = 0;
    for (int64_t i = 0; i < num; i++)
        most = fmaxf(most, fabsf(x[i]));
    for (int64_t i = 0; i < num; i++)
        to[i] = code_of(is_signed, x[i] / most, tri_block8_random(x[i], key));
    memcpy(to + BLOCK, &most, 4);
}

/* AdamW as the paper has it, with rounding to float where the formula says so. */
static void plain_adam8(const op_case *c, const op_run *run, plain *out)
{
    const float *g = run->args.in[3].data, *sched = run->args.in[4].data;
    const float *result = run->args.in[5].data, *own = sched + run->attr.update.own_rows;
    const tri_update_attr *a = &c->attr.update;
    float lr = sched[TRI_STEP_LR] * a->lr_scale, factor = result[TRI_RESULT_FACTOR];
    uint32_t key = tri_bits_of(own[TRI_ADAM8_NTH]) * 0x27d4eb2fu;
    for (int64_t first = 0; first < run->args.out[0].count; first += BLOCK) {
        int64_t num =
            run->args.out[0].count - first < BLOCK ? run->args.out[0].count - first : BLOCK;
        float m[BLOCK], v[BLOCK], scale;
        unsigned char *m8 = out->m8 + first / BLOCK * BYTES, *v8 = out->v8 + first / BLOCK * BYTES;
        for (int64_t i = 0; i < num; i++) {
            memcpy(&scale, m8 + BLOCK, 4);
            m[i] = number_of(true, m8[i]) * scale;
            memcpy(&scale, v8 + BLOCK, 4);
            v[i] = number_of(false, v8[i]) * scale;
            float grad = g[first + i] * factor, *p = &out->p[first + i];
            m[i] = fmaf(a->beta1, m[i], (1 - a->beta1) * grad);
            v[i] = fmaf(a->beta2, v[i], (1 - a->beta2) * grad * grad);
            float step = m[i] * own[TRI_ADAM_BIAS1] / (sqrtf(v[i] * own[TRI_ADAM_BIAS2]) + a->eps);
            *p = fmaf(-lr, step, fmaf(-lr, a->weight_decay, 1) * *p);
        }
        plain_encode(true, m, num, key, m8);
        plain_encode(false, v, num, ~key, v8);
    }
}

static void check_kernel(const tri_kernel *kernel, tri_isa isa)
{
    static const op_case c = {"plain",
                              TRI_OP_ADAM8,
                              {5003},
                              {.update = {.lr_scale = 0.5f,
                                          .beta1 = 0.9f,
                                          .beta2 = 0.95f,
                                          .eps = 1e-8f,
                                          .weight_decay = 0.1f,
                                          .decoupled = true}},
                              0,
                              0};
    op_run run, expected;
    op_run_init(&run, &c, NULL);
    op_run_init(&expected, &c, NULL);
    op_run_kernel(&run, kernel, NULL, isa);
    plain out = {.p = expected.args.out[0].data,
                 .m8 = expected.args.out[1].data,
                 .v8 = expected.args.out[2].data};
    plain_adam8(&c, &expected, &out);
    assert_memory_equal(run.args.out[0].data, out.p, 5003 * 4);
    assert_memory_equal(run.args.out[1].data, out.m8, tri_dtype_size(TRI_Q8S, 5003));
    assert_memory_equal(run.args.out[2].data, out.v8, tri_dtype_size(TRI_Q8U, 5003));
    op_run_fini(&run);
    op_run_fini(&expected);
}

static void test_adam8_is_a_plain_loop(void **state)
{
    (void)state;
    check_kernel(tri_cpu_reference(TRI_OP_ADAM8), TRI_ISA_BASE);
    for (tri_isa isa = TRI_ISA_BASE; isa <= tri_isa_detect(); isa++)
        check_kernel(tri_cpu_fast(TRI_OP_ADAM8, isa), isa);
}

/* --- Training ------------------------------------------------------------------------------- */

#define WIDE "model.num_layers=2", "model.dim=64", "model.num_heads=4", "data.seq_len=32"

static double train(const char *moments, int steps, uint64_t *bytes)
{
    tr_session *session;
    tr_error err = {0};
    tr_settings *settings =
        settings_of(TINY, SET(WIDE, moments, "optim.lr=3e-3", "optim.beta2=0.99"));
    if (tr_session_create(settings, &session, &err) != TR_OK)
        fail_msg("%s", err.message);
    *bytes = session->session.programs[TRI_PROGRAM_TRAIN].spaces[TRI_SPACE_OPTIM].bytes;
    double sum = 0;
    for (int i = 0; i < steps; i++) {
        tr_step done;
        assert_int_equal(tr_session_step(session, &done, &err), TR_OK);
        sum += i >= steps - 10 ? done.loss / 10 : 0;
    }
    tr_session_destroy(session);
    tr_settings_destroy(settings);
    return sum;
}

/* The same loss as with fp32 moments, to much less than what training has gained; the plan has a
 * little more than a quarter of their bytes. */
static void test_training_in_8_bits(void **state)
{
    (void)state;
    uint64_t wide, narrow;
    double want = train("optim.moments=fp32", 60, &wide);
    double got = train("optim.moments=8bit", 60, &narrow);
    print_message("loss %.4f in fp32, %.4f in 8 bits; moments %.0f and %.0f bytes\n", want, got,
                  (double)wide, (double)narrow);
    assert_true(want < 4.5); /* it has learnt something */
    assert_true(fabs(got - want) <= 0.02 * want);
    assert_true((double)narrow < 0.32 * (double)wide);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_code_is_its_own),
        cmocka_unit_test(test_blocks_are_encoded_once),
        cmocka_unit_test(test_the_largest_is_the_last),
        cmocka_unit_test(test_rounding_has_the_right_mean),
        cmocka_unit_test(test_adam8_is_a_plain_loop),
        cmocka_unit_test(test_training_in_8_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
