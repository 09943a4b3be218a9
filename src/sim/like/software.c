#include "sim/like/software.h"

#include <math.h>
#include <strings.h>

const tri_software *tri_software_find(const char *name)
{
    const tri_software *w;
    for (size_t i = 0; (w = tri_software_at(i)); i++)
        if (strcasecmp(w->name, name) == 0)
            return w;
    return NULL;
}

static double bytes_seconds(const tri_software *w, const tri_device_profile *p, double bytes,
                            double gaps)
{
    return tri_profile_memory(p, bytes * w->passes, gaps, w->gap_s);
}

static double product_seconds(const tri_software *w, const tri_device_profile *p, double m,
                              double n, double k, tri_rate rate, double out_bytes)
{
    const tri_product_size s = {
        .m = m, .n = n, .k = k, .batch = 1, .rate = rate, .out_bytes = out_bytes, .slower = 1};
    return tri_profile_product(p, &s, w->gap_s);
}

/* The host starts 18 kernels for a layer's forward, and twice as many for its backward: a product
 * is 2 of them with what prepares it, the rest are those of norms, attention and activation. */
tri_op_time tri_software_linear(const tri_software *w, const tri_device_profile *p,
                                const tri_linear_size *s, bool backward)
{
    bool bits8 = s->rate == TRI_RATE_FP8 || s->rate == TRI_RATE_INT8;
    double t = s->tokens, n = s->outputs, k = s->inputs, seconds;
    if (!backward) {
        seconds = product_seconds(w, p, t, n, k, s->rate, 2);
        if (bits8)
            seconds += w->cast * bytes_seconds(w, p, 3 * t * k + 4 * n * k, 2);
        return (tri_op_time){seconds, 2};
    }
    seconds = product_seconds(w, p, t, k, n, s->rate, 2) +
              product_seconds(w, p, n, k, t, s->rate, w->weight_gradient);
    if (bits8)
        seconds += w->cast * bytes_seconds(w, p, 4 * t * n, 1);
    if (s->bias)
        seconds += bytes_seconds(w, p, 2 * t * n, 1);
    return (tri_op_time){seconds, 4};
}

/* Operands of products whose rows do not begin at multiples of 16 bytes are read piecemeal. */
static double unaligned(const tri_software *w, double width)
{
    if (fmod(width, 8) == 0)
        return 1;
    return pow(w->odd, fmod(width, 4) == 0 ? 1 : fmod(width, 2) == 0 ? 2 : w->odder);
}

static tri_op_time kept_scores(const tri_software *w, const tri_device_profile *p,
                               const tri_core_size *s, bool backward)
{
    double batch = s->heads * s->rows, slower = unaligned(w, s->width), elements;
    const tri_product_size scores = {.m = s->tokens,
                                     .n = s->tokens,
                                     .k = s->width,
                                     .batch = batch,
                                     .rate = TRI_RATE_16,
                                     .out_bytes = 2,
                                     .slower = slower};
    tri_product_size values = scores;
    values.n = s->width;
    values.k = s->tokens;
    double score_s = tri_profile_product(p, &scores, w->gap_s);
    double value_s = tri_profile_product(p, &values, w->gap_s);
    bool fused = fmod(batch, 4) == 0 && s->tokens <= 2048;
    elements = batch * s->tokens * s->tokens * (fused ? 1 : w->plain_softmax);
    double bytes = (backward ? w->softmax_back : w->softmax) * elements;
    double seconds = score_s + (backward ? 3 : 1) * value_s + bytes_seconds(w, p, bytes, 2);
    double more = fmod(batch, 4) == 0 ? 6 : 12;
    return (tri_op_time){seconds, (backward ? 2 : 1) * (2 + more)};
}

tri_op_time tri_software_attention(const tri_software *w, const tri_device_profile *p,
                                   const tri_core_size *s, bool backward)
{
    if (!w->flash)
        return kept_scores(w, p, s, backward);
    const tri_flash_size shape = {.rows = s->rows,
                                  .heads = s->heads,
                                  .queries = s->tokens,
                                  .keys = s->tokens,
                                  .width = s->width,
                                  .causal = true,
                                  .backward = backward,
                                  .portable = w->portable};
    double rate = backward ? w->attention_back : w->attention;
    double seconds = tri_profile_flash(p, &shape, w->gap_s) / s->ranks / rate;
    return (tri_op_time){seconds, backward ? 4 : 2};
}

tri_op_time tri_software_head_moves(const tri_software *w, const tri_device_profile *p,
                                    double elements, bool backward)
{
    double seconds = bytes_seconds(w, p, w->head_moves * elements, 4);
    return (tri_op_time){seconds, backward ? 4 : 2};
}

tri_op_time tri_software_norm(const tri_software *w, const tri_device_profile *p, double elements,
                              bool plain, bool backward)
{
    double sum = backward ? w->residual_back : w->residual;
    double bytes = (backward ? 10 : 4) + (plain ? fmin(6, sum) : sum);
    double seconds = bytes_seconds(w, p, bytes * elements, backward ? 4 : 2);
    return (tri_op_time){seconds, backward ? 5 : 2.5};
}

tri_op_time tri_software_activation(const tri_software *w, const tri_device_profile *p,
                                    double elements, bool gated, bool backward)
{
    double bytes = backward ? (gated ? 10 : 6) : (gated ? 6 : 4);
    double seconds = bytes_seconds(w, p, bytes * elements, backward ? 2 : 1);
    return (tri_op_time){seconds, backward ? 2 : 1};
}

tri_op_time tri_software_loss(const tri_software *w, const tri_device_profile *p, double logits,
                              bool backward)
{
    double bytes = (backward ? w->loss_back : w->loss) * logits;
    double kernels = backward ? 4 : 6;
    return (tri_op_time){tri_profile_memory(p, bytes, kernels, w->gap_s), kernels};
}

tri_op_time tri_software_accumulate(const tri_software *w, const tri_device_profile *p,
                                    double weights)
{
    if (w->accumulate <= 0)
        return (tri_op_time){0};
    return (tri_op_time){bytes_seconds(w, p, w->accumulate * weights, 1), 0};
}

tri_op_time tri_software_update(const tri_software *w, const tri_device_profile *p,
                                double parameters)
{
    return (tri_op_time){tri_profile_memory(p, w->update * parameters, 0, 0), 0};
}

double tri_software_pace(const tri_software *w, double device_s, double kernels, double tp)
{
    return fmax(device_s, w->host_s * kernels * (1 + w->host_spread * log2(tp)));
}
