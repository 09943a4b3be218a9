/* The cache of generation: keys and values of earlier positions, a state that lives between
 * programs.
 *
 * A row of the cache is one text; its positions are its places, and lie in a ring: place p is at p
 * mod P. Which row and which positions a batch brings is data, so prompts of any length, texts of
 * different lengths in one batch, and rows that wait are all the same program. What attention then
 * sees (attention.c) are the places up to a query's own, or the window's worth of them; that they
 * are in the cache is the caller's duty: without a window, texts no longer than P; with one, P of
 * at least window - 1 more than the positions that one program writes. */
#include "graph/op_table.h"

enum { WRITE_K_CACHE, WRITE_V_CACHE, WRITE_K, WRITE_V, WRITE_POSITIONS, WRITE_ROWS, NUM_WRITE_IN };

static tr_status check_caches(const tri_shape *k, const tri_shape *v, tr_error *err)
{
    char text[128];
    if (k->rank == 4 && tri_shape_equal(k, v) && k->dim[0].size > 0 && k->dim[2].size > 0)
        return TR_OK;
    return tri_fail(err, TR_ERROR_INPUT, "needs two equal caches [B, G, P, K], not %s",
                    tri_shape_text(k, text, sizeof text));
}

/* x is [B, T, ...]: a position for each of its first two dims, a row for the first. */
static tr_status check_places(const tri_shape *x, const tri_shape *positions, const tri_shape *rows,
                              tr_error *err)
{
    char a[128], b[128];
    if (positions->rank == 2 && rows->rank == 1 && rows->dim[0].size == x->dim[0].size &&
        positions->dim[0].size == x->dim[0].size && positions->dim[1].size == x->dim[1].size)
        return TR_OK;
    return tri_fail(err, TR_ERROR_INPUT,
                    "needs a position for each [B, T] and a row of the cache for each [B], not %s "
                    "and %s",
                    tri_shape_text(positions, a, sizeof a), tri_shape_text(rows, b, sizeof b));
}

static bool is_packed(const tri_shape *x)
{
    return x->rank == 5 && x->dim[2].name == TRI_DIM_QKV && x->dim[2].size == 3;
}

static tr_status infer_write(const tri_node *node, const tri_shape *in, tri_shape *out,
                             tri_dtype *out_dtype, tr_error *err)
{
    (void)node;
    (void)out_dtype;
    char a[128], b[128];
    const tri_shape *cache = &in[WRITE_K_CACHE], *k = &in[WRITE_K], *v = &in[WRITE_V];
    TRI_TRY(check_caches(cache, &in[WRITE_V_CACHE], err));
    bool fits = v->rank < 0 ? is_packed(k) : k->rank == 4 && tri_shape_equal(k, v);
    if (!fits || k->dim[k->rank - 2].size != cache->dim[1].size ||
        k->dim[k->rank - 1].size != cache->dim[3].size)
        return tri_fail(err, TR_ERROR_INPUT,
                        "needs k and v [B, T, G, K], or qkv [B, T, 3, H, K] alone, for a cache %s, "
                        "not %s",
                        tri_shape_text(cache, a, sizeof a), tri_shape_text(k, b, sizeof b));
    TRI_TRY(check_places(k, &in[WRITE_POSITIONS], &in[WRITE_ROWS], err));
    out[0] = in[WRITE_K_CACHE];
    out[1] = in[WRITE_V_CACHE];
    return TR_OK;
}

static double flops_write(const tri_node *node, const tri_shape *in, const tri_shape *out)
{
    (void)node;
    (void)in;
    (void)out;
    return 0;
}

const tri_op_def tri_def_cache_write = {
    .name = "cache_write",
    .inputs = "k_cache [B, G, P, K], v_cache [B, G, P, K], k [B, T, G, K] (or qkv [B, T, 3, H, "
              "K]), v [B, T, G, K] or none, positions i32 [B, T], rows i32 [B]",
    .outputs = "k_cache, v_cache",
    .meaning = "Puts k and v of position p of row b at p mod P of row rows[b] of the caches; what "
               "has a negative position is left out. The rest of the caches stays as it is.",
    .min_in = NUM_WRITE_IN,
    .max_in = NUM_WRITE_IN,
    .min_out = 2,
    .max_out = 2,
    .updates = {WRITE_K_CACHE + 1, WRITE_V_CACHE + 1},
    .optional = 1 << WRITE_V,
    .infer = infer_write,
    .place = tri_place_cache_write,
    .flops = flops_write,
};
