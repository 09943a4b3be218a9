/* Tensor parallelism with fewer key heads than ranks: tp = kv x kv_copy (place/tp.c). */
#include <stdio.h>
#include <string.h>

#include "config/resolve.h"

tr_status tri_divide_key_heads(tri_compile_config *compile, tr_error *err)
{
    const tri_model_config *m = &compile->model;
    int tp = tri_mesh_size(&compile->mesh, TRI_AXIS_TP);
    int64_t kv = m->num_kv_heads;
    if (strcmp(m->kind, "llama") != 0 || kv >= tp || kv < 1)
        return TR_OK;
    if (tp % kv == 0) {
        compile->mesh.size[TRI_AXIS_KV_COPY] = (int)(tp / kv);
        return TR_OK;
    }
    long long below = tp / kv * kv, above = below + kv;
    char more[48] = "";
    if (above <= m->num_heads)
        snprintf(more, sizeof more, " or layout.tp=%lld", above);
    return tri_fail(err, TR_ERROR_INPUT,
                    "layout.tp is %d, but model.num_kv_heads is %lld: above that, tp must be a "
                    "multiple of it, so that every key head is held by equally many ranks (with "
                    "other numbers some rank would have as many heads as with layout.tp=%lld); use "
                    "layout.tp=%lld%s",
                    tp, (long long)kv, below, below, more);
}
