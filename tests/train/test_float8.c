/* 8-bit operands: the numbers against PyTorch's, rounding a tensor against a plain loop, which
 * products the pass changes and what it keeps for the backward, and gradients beside those of bf16.
 */
#include "small_models.h"

#include "kept_bytes.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/float8.h"
#include "ckpt/safetensors.h"
#include "graph/op_table.h"
#include "op_cases.h"

#define WIDE "model.num_layers=2", "model.dim=64", "data.seq_len=32", "precision.kind=bf16"
#define FP8  WIDE, "precision.linear=fp8"
#define LLAMA                                                                                      \
    "model.kind=llama", "model.num_heads=4", "model.num_kv_heads=2", "model.ffn_dim=128",          \
        "model.dropout=0"

#define EXPERTS LLAMA, "model.num_experts=4", "model.experts_per_token=2", "model.expert_dim=64"

/* --- Numbers -------------------------------------------------------------------------------- */

static const void *tensor(const tri_safetensors *file, const char *type, const char *what,
                          size_t *count, size_t bytes)
{
    char name[32];
    snprintf(name, sizeof name, "%s.%s", type, what);
    const tri_safetensor *found = tri_safetensors_find(file, name);
    assert_non_null(found);
    *count = found->num_bytes / bytes;
    return found->data;
}

static void check_numbers(const char *type, float (*widen)(uint8_t), uint8_t (*narrow)(float))
{
    tri_safetensors *file;
    tr_error err = {0};
    if (tri_safetensors_open("tests/fixtures/float8.safetensors", &file, &err) != TR_OK)
        fail_msg("%s", err.message);
    size_t num;
    const float *values = tensor(file, type, "values", &num, sizeof *values);
    assert_int_equal(num, 256);
    for (int code = 0; code < 256; code++) {
        float got = widen((uint8_t)code);
        bool beyond = !isfinite(values[code]); /* PyTorch's infinities of e5m2 are never made */
        if (isnan(values[code]) ? !isnan(got) : got != values[code])
            fail_msg("%s %02x is %g, PyTorch has %g", type, (unsigned)code, (double)got,
                     (double)values[code]);
        if (!beyond)
            assert_int_equal(narrow(got), code);
    }
    const float *numbers = tensor(file, type, "numbers", &num, sizeof *numbers);
    size_t num_codes;
    const uint8_t *codes = tensor(file, type, "codes", &num_codes, 1);
    assert_int_equal(num, num_codes);
    assert_true(num > 800);
    for (size_t i = 0; i < num; i++)
        if (narrow(numbers[i]) != codes[i])
            fail_msg("%s of %.9g is %02x, PyTorch has %02x", type, (double)numbers[i],
                     narrow(numbers[i]), codes[i]);
    tri_safetensors_close(file);
}

static float widen_e4m3(uint8_t x)
{
    return tri_e4m3_to_f32(x);
}

static float widen_e5m2(uint8_t x)
{
    return tri_e5m2_to_f32(x);
}

static uint8_t narrow_e4m3(float x)
{
    return tri_f32_to_e4m3(x);
}

static uint8_t narrow_e5m2(float x)
{
    return tri_f32_to_e5m2(x);
}

static void test_numbers_against_pytorch(void **state)
{
    (void)state;
    check_numbers("e4m3", widen_e4m3, narrow_e4m3);
    check_numbers("e5m2", widen_e5m2, narrow_e5m2);
}

static void test_ends_of_the_range(void **state)
{
    (void)state;
    assert_true(tri_e4m3_to_f32(tri_f32_to_e4m3(1e9f)) == TRI_E4M3_MAX);
    assert_true(tri_e4m3_to_f32(tri_f32_to_e4m3(-INFINITY)) == -TRI_E4M3_MAX);
    assert_true(tri_e5m2_to_f32(tri_f32_to_e5m2(INFINITY)) == TRI_E5M2_MAX);
    assert_true(isnan(tri_e4m3_to_f32(tri_f32_to_e4m3(NAN))));
    assert_true(isnan(tri_e5m2_to_f32(tri_f32_to_e5m2(-NAN))));
}

/* The largest fits, and would not with half the scale. */
static void test_scales(void **state)
{
    (void)state;
    const float most[] = {TRI_E4M3_MAX, TRI_E5M2_MAX};
    for (int f = 0; f < 2; f++)
        for (float amax = 1e-20f; amax < 1e20f; amax *= 1.37f) {
            float scale = tri_scale8(amax, most[f]);
            int exponent;
            assert_true(frexpf(scale, &exponent) == 0.5f);
            assert_true(amax / scale <= most[f] && amax / scale > most[f] / 2);
        }
    assert_true(tri_scale8(448 * 8, TRI_E4M3_MAX) == 8);
    assert_true(tri_scale8(0, TRI_E4M3_MAX) == 0x1p-100f);
    assert_true(isinf(tri_scale8(INFINITY, TRI_E4M3_MAX)));
}

/* --- A tensor ------------------------------------------------------------------------------- */

/* Through the device, as an executor calls it: 16-bit in, 8-bit out. */
static void test_quantise_against_a_loop(void **state)
{
    (void)state;
    enum { ROWS = 48, COLS = 80, COUNT = ROWS * COLS };
    static uint16_t x[COUNT];
    static uint8_t q[COUNT], turned[COUNT];
    float amax[TRI_AMAX_PARTS], scale, largest = 0;
    tri_device device;
    tr_error err = {0};
    tri_device_config config = {.kind = "cpu", .num_threads = 2, .isa = "auto"};
    assert_int_equal(tri_device_open(&config, &device, &err), TR_OK);
    for (int i = 0; i < COUNT; i++) {
        float value = ldexpf(sinf((float)i), i % 23 - 12);
        x[i] = tri_f32_to_bf16(value);
        largest = fmaxf(largest, fabsf(tri_bf16_to_f32(x[i])));
    }
    tri_attr attr = {
        .quantise = {.split = 1, .straight = true, .turned = true, .dtype = TRI_F8E4M3}};
    tri_kernel_args find = {.attr = &attr, .num_in = 1, .num_out = 1, .overwrite = true};
    tri_kernel_args make = {.attr = &attr, .num_in = 2, .num_out = 3, .overwrite = true};
    find.device = make.device = device.state;
    find.in[0] = make.in[0] = (tri_tensor){x, TRI_BF16, 2, {ROWS, COLS}, {0}, {0}, COUNT};
    find.out[0] = make.in[1] =
        (tri_tensor){amax, TRI_F32, 1, {TRI_AMAX_PARTS}, {0}, {0}, TRI_AMAX_PARTS};
    make.out[0] = (tri_tensor){&scale, TRI_F32, 1, {1}, {0}, {0}, 1};
    make.out[1] = (tri_tensor){q, TRI_F8E4M3, 2, {ROWS, COLS}, {0}, {0}, COUNT};
    make.out[2] = (tri_tensor){turned, TRI_F8E4M3, 2, {COLS, ROWS}, {0}, {0}, COUNT};
    const tri_op ops[] = {TRI_OP_AMAX, TRI_OP_QUANTISE};
    for (int i = 0; i < 2; i++) {
        tri_kernel_args *args = i == 0 ? &find : &make;
        tri_call_plan plan = tri_device_plan_call(&device, ops[i], args);
        size_t scratch = tri_device_call_scratch(&device, &plan, args);
        assert_int_equal(device.def->reserve_scratch(&device, scratch, &err), TR_OK);
        tri_device_call(&plan, args);
    }
    assert_true(largest / scale <= TRI_E4M3_MAX && largest / scale > TRI_E4M3_MAX / 2);
    for (int r = 0; r < ROWS; r++)
        for (int c = 0; c < COLS; c++) {
            uint8_t want = tri_f32_to_e4m3(tri_bf16_to_f32(x[r * COLS + c]) / scale);
            assert_int_equal(q[r * COLS + c], want);
            assert_int_equal(turned[c * ROWS + r], want);
        }
    tri_device_close(&device);
}

/* --- The pass ------------------------------------------------------------------------------- */

typedef struct counts {
    int products, narrow, amax, quantise;
    int grouped, grouped8, gathered; /* products of experts; rows quantised while gathered */
    int e5m2;                        /* quantised gradients */
    bool keeps_wide_in;              /* a 16-bit input of a product lives into the backward */
} counts;

static counts count_in(const tri_program *program)
{
    counts n = {0};
    for (size_t i = 0; i < program->num_instrs; i++) {
        const tri_instr *instr = &program->instrs[i];
        n.amax += instr->op == TRI_OP_AMAX;
        n.quantise += instr->op == TRI_OP_QUANTISE;
        n.e5m2 += instr->op == TRI_OP_QUANTISE && instr->attr.quantise.dtype == TRI_F8E5M2;
        n.gathered += instr->op == TRI_OP_QUANTISE && instr->num_in > 2;
        n.grouped += instr->op == TRI_OP_GROUPED || instr->op == TRI_OP_GROUPED_GRAD;
        if (instr->op == TRI_OP_GROUPED8 || instr->op == TRI_OP_GROUPED8_GRAD) {
            tri_dtype first = program->values[instr->in[0].value].dtype;
            n.grouped8++;
            assert_int_equal(first, instr->attr.grouped.fast_sum ? TRI_F8E4M3 : TRI_F8E5M2);
            assert_int_equal(program->values[instr->in[1].value].dtype, TRI_F8E4M3);
        }
        if (instr->op != TRI_OP_MATMUL)
            continue;
        n.products++;
        n.narrow += tri_dtype_is_float8(program->values[instr->in[0].value].dtype);
        if (instr->num_in > 3) { /* contracted dims last, and scales */
            assert_false(instr->attr.matmul.trans_a);
            assert_true(instr->attr.matmul.trans_b);
            assert_int_equal(program->values[instr->in[1].value].dtype, TRI_F8E4M3);
        }
    }
    return n;
}

static void test_which_products(void **state)
{
    (void)state;
    tr_settings *settings = settings_of(TINY, SET(FP8, LLAMA));
    tr_session *session = compiled(settings);
    counts n = count_in(&session->session.programs[TRI_PROGRAM_TRAIN]);
    /* Two layers of seven matrices, three products each; the head's three are left alone. */
    assert_int_equal(n.products, 2 * 7 * 3 + 3);
    assert_int_equal(n.narrow, 2 * 7 * 3);
    /* Four inputs and seven gradients a layer; seven weights, twice, with one amax. */
    assert_int_equal(n.amax, 2 * (4 + 7 + 7));
    assert_int_equal(n.quantise, 2 * (4 + 7 + 7 + 7));
    assert_int_equal(n.e5m2, 2 * 7);
    tr_session_destroy(session);
    tr_settings_destroy(settings);
}

static void test_odd_sides_are_left_alone(void **state)
{
    (void)state;
    tr_settings *settings = settings_of(TINY, SET(FP8, LLAMA, "model.ffn_dim=120"));
    tr_session *session = compiled(settings);
    counts n = count_in(&session->session.programs[TRI_PROGRAM_TRAIN]);
    assert_int_equal(n.narrow, 2 * 4 * 3); /* those of attention */
    tr_session_destroy(session);
    tr_settings_destroy(settings);
}

static counts count_experts(const char *const *assignments)
{
    tr_settings *settings = settings_of(TINY, assignments);
    tr_session *session = compiled(settings);
    counts n = count_in(&session->session.programs[TRI_PROGRAM_TRAIN]);
    tr_session_destroy(session);
    tr_settings_destroy(settings);
    return n;
}

static void test_which_products_of_experts(void **state)
{
    (void)state;
    counts n = count_experts(SET(FP8, EXPERTS));
    assert_int_equal(n.grouped8, 2 * 3 * 3);
    assert_int_equal(n.grouped, 0);
    /* The rows of the tokens, and the gradient of what comes back from the experts. */
    assert_int_equal(n.gathered, 2 * 2);
    /* Four matrices of attention; the router's product is in f32. */
    assert_int_equal(n.narrow, 2 * 4 * 3);
    assert_int_equal(n.e5m2, 2 * 7);
    n = count_experts(SET(FP8, EXPERTS, "layout.dp=2", "layout.ep=2"));
    assert_int_equal(n.grouped8, 2 * 3 * 3);
    assert_int_equal(n.gathered, 0); /* rooms have rows of nobody */
    n = count_experts(SET(FP8, EXPERTS, "model.expert_dim=72"));
    assert_int_equal(n.grouped8, 0);
    assert_int_equal(n.grouped, 2 * 3 * 3);
}

/* The backward reads bytes where it read words: inputs of norms' products are not kept in 16 bits.
 */
static void test_less_is_kept(void **state)
{
    (void)state;
    uint64_t kept[2];
    for (int narrow = 0; narrow < 2; narrow++) {
        tr_settings *settings =
            settings_of(TINY, SET(WIDE, LLAMA, "train.batch=16",
                                  narrow ? "precision.linear=fp8" : "precision.linear=same"));
        tr_session *session = compiled(settings);
        const tri_program *program = &session->session.programs[TRI_PROGRAM_TRAIN];
        kept[narrow] = kept_bytes(program);
        tr_session_destroy(session);
        tr_settings_destroy(settings);
    }
    assert_true(kept[1] < kept[0]);
}

static void test_other_kinds_are_refused(void **state)
{
    (void)state;
    const char *const kinds[] = {"precision.kind=fp32", "precision.kind=fp16"};
    for (int i = 0; i < 2; i++) {
        tr_settings *settings = settings_of(TINY, SET(kinds[i], "precision.linear=fp8"));
        tr_session *session;
        tr_error err = {0};
        assert_int_equal(tr_session_create(settings, &session, &err), TR_ERROR_INPUT);
        assert_non_null(strstr(err.message, "Set precision.kind to bf16"));
        tr_settings_destroy(settings);
    }
}

/* --- Gradients ------------------------------------------------------------------------------ */

static tr_session *stepped(tr_settings **settings, const char *const *assignments, tr_step *done)
{
    tr_session *session;
    tr_error err = {0};
    *settings = settings_of(TINY, assignments);
    if (tr_session_create(*settings, &session, &err) != TR_OK ||
        tr_session_step(session, done, &err) != TR_OK)
        fail_msg("%s", err.message);
    return session;
}

static double norm_of(const float *x, const float *minus, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) {
        double d = (double)x[i] - (minus ? (double)minus[i] : 0);
        sum += d * d;
    }
    return sqrt(sum);
}

/* e4m3 rounds by up to 2^-4 and e5m2 by 2^-3; in sums of many such terms it averages out. */
static void check_gradients(const char *const *wide, const char *const *narrow)
{
    tr_settings *settings[2];
    tr_step done[2];
    tr_session *a = stepped(&settings[0], wide, &done[0]);
    tr_session *b = stepped(&settings[1], narrow, &done[1]);
    assert_true(fabs(done[1].loss - done[0].loss) <= 2e-3 * done[0].loss);
    assert_true(done[1].loss != done[0].loss);
    assert_true(fabs(done[1].grad_norm - done[0].grad_norm) <= 3e-2 * done[0].grad_norm);
    for (size_t i = 0; i < a->session.params.count; i++) {
        const tri_param *param = &a->session.params.items[i];
        int64_t n = tri_shape_count(&param->shape);
        float *x = malloc((size_t)n * sizeof *x), *y = malloc((size_t)n * sizeof *y);
        assert_non_null(x);
        assert_non_null(y);
        assert_int_equal(tri_session_grad(&a->session, (tri_id)i, x, NULL), TR_OK);
        assert_int_equal(tri_session_grad(&b->session, (tri_id)i, y, NULL), TR_OK);
        double off = norm_of(y, x, n), size = norm_of(x, NULL, n);
        free(x);
        free(y);
        if (!(off <= 0.15 * size + 2e-3 * done[0].grad_norm))
            fail_msg("gradient of %s is off by %g of %g", param->name, off, size);
    }
    tr_session_destroy(a);
    tr_session_destroy(b);
    tr_settings_destroy(settings[0]);
    tr_settings_destroy(settings[1]);
}

static void test_gradients_beside_bf16(void **state)
{
    (void)state;
    check_gradients(SET(WIDE, LLAMA), SET(FP8, LLAMA));
    check_gradients(SET(WIDE, "model.dropout=0"), SET(FP8, "model.dropout=0"));
    check_gradients(SET(WIDE, LLAMA, "layout.microbatches=2"),
                    SET(FP8, LLAMA, "layout.microbatches=2"));
    check_gradients(SET(WIDE, EXPERTS), SET(FP8, EXPERTS));
}

/* What is kept of a tensor that is quantised again is its scale. */
static void test_amax_is_not_made_again(void **state)
{
    (void)state;
    tr_settings *settings = settings_of(TINY, SET(FP8, LLAMA, "layout.recompute=full"));
    tr_session *session = compiled(settings);
    const tri_program *program = &session->session.programs[TRI_PROGRAM_TRAIN];
    int again = 0;
    for (size_t i = 0; i < program->num_instrs; i++) {
        assert_false(program->instrs[i].op == TRI_OP_AMAX && program->instrs[i].redone);
        again += program->instrs[i].op == TRI_OP_QUANTISE && program->instrs[i].redone;
    }
    assert_true(again > 0);
    tr_session_destroy(session);
    tr_settings_destroy(settings);
}

/* What is made again in the backward is what was made in the forward, scales and all, but for norms
 * of a sum that was rounded in between. */
static void test_recomputation(void **state)
{
    (void)state;
    const char *const levels[] = {"layout.recompute=none", "layout.recompute=selective",
                                  "layout.recompute=full"};
    double norm = 0;
    for (int i = 0; i < 3; i++) {
        tr_settings *settings;
        tr_step done;
        tr_session *session = stepped(&settings, SET(FP8, LLAMA, levels[i]), &done);
        assert_true(i == 0 || fabs(done.grad_norm - norm) <= 5e-3 * norm);
        norm = done.grad_norm;
        tr_session_destroy(session);
        tr_settings_destroy(settings);
    }
}

static void test_threads_and_kernels(void **state)
{
    (void)state;
    const char *const how[] = {"run.threads=1", "run.threads=3", "run.kernels=reference"};
    for (int experts = 0; experts < 2; experts++) {
        double norm[3];
        for (int i = 0; i < 3; i++) {
            tr_settings *settings;
            tr_step done;
            const char *const words[] = {FP8, LLAMA, how[i], NULL};
            const char *const mixture[] = {FP8, EXPERTS, how[i], NULL};
            tr_session *session = stepped(&settings, experts ? mixture : words, &done);
            norm[i] = done.grad_norm;
            tr_session_destroy(session);
            tr_settings_destroy(settings);
        }
        assert_true(norm[1] == norm[0]);
        assert_true(fabs(norm[2] - norm[0]) <= 5e-3 * norm[0]);
    }
}

/* A number that is not finite reaches the loss, and the step is skipped. */
static void test_what_is_not_finite_is_noticed(void **state)
{
    (void)state;
    const float bad[] = {INFINITY, NAN};
    for (int i = 0; i < 2; i++) {
        tr_settings *settings;
        tr_step done;
        tr_session *session = stepped(&settings, SET(FP8, LLAMA), &done);
        tr_error err = {0};
        assert_false(done.skipped);
        for (size_t p = 0; p < tr_session_num_params(session); p++) {
            tr_param param = tr_session_param(session, p);
            if (strstr(param.name, "layers.0.input_layernorm.weight"))
                param.data[3] = bad[i];
        }
        assert_int_equal(tr_session_step(session, &done, &err), TR_OK);
        assert_true(done.skipped);
        tr_session_destroy(session);
        tr_settings_destroy(settings);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_numbers_against_pytorch),
        cmocka_unit_test(test_ends_of_the_range),
        cmocka_unit_test(test_scales),
        cmocka_unit_test(test_quantise_against_a_loop),
        cmocka_unit_test(test_which_products),
        cmocka_unit_test(test_which_products_of_experts),
        cmocka_unit_test(test_odd_sides_are_left_alone),
        cmocka_unit_test(test_less_is_kept),
        cmocka_unit_test(test_other_kinds_are_refused),
        cmocka_unit_test(test_gradients_beside_bf16),
        cmocka_unit_test(test_amax_is_not_made_again),
        cmocka_unit_test(test_recomputation),
        cmocka_unit_test(test_threads_and_kernels),
        cmocka_unit_test(test_what_is_not_finite_is_noticed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
