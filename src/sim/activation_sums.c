#include "sim/activation_sums.h"

double tri_activation_bytes(const tri_layer_sizes *l, tri_kept_kind kept)
{
    double e = l->element_bytes, stream = l->tokens * l->width; /* s b h */
    /* Inputs of both norms, of the first products of attention and of the feed-forward, and two
     * masks lie between the blocks of tp; q, k, v, attention's result and the feed-forward within
     * them. */
    double between = stream * (4 * e + 2) / (l->sp ? l->tp : 1);
    double within = stream * 12 * e / l->tp;
    double scores = (2 * e + 1) * l->heads * l->tokens * l->seq_len / l->tp;
    switch (kept) {
    case TRI_KEPT_ALL:
        return between + within + scores;
    case TRI_KEPT_SELECTIVE:
        return between + within;
    default:
        return e * stream / (l->sp ? l->tp : 1);
    }
}
