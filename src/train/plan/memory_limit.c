/* run.memory_limit: what a rank may take. The plan knows before anything is allocated. */
#include "base/text.h"
#include "train/session.h"

tr_status tri_session_check_memory(const tri_session *session, tr_error *err)
{
    const tri_store *store = &session->store;
    uint64_t limit = session->config.memory_limit, needed = tri_store_total(store);
    if (limit == 0 || needed <= limit)
        return TR_OK;
    char text[6][16];
    uint64_t weights = store->slabs[TRI_SLAB_PARAM].bytes + store->slabs[TRI_SLAB_COPY].bytes;
    uint64_t grads = store->slabs[TRI_SLAB_GRAD].bytes, optim = store->slabs[TRI_SLAB_OPTIM].bytes;
    if (!session->device.def->queue) /* what rests on the host is in the plan, too */
        optim += store->host[TRI_SLAB_OPTIM].bytes;
    uint64_t rest = needed - weights - grads - optim;
    return tri_fail(err, TR_ERROR_INPUT,
                    "rank %d needs %s (weights %s, %s %s, optimizer state %s, activations and "
                    "workspace %s), but run.memory_limit is %s; divide the model (layout.tp, "
                    "layout.zero with layout.dp), long rows (layout.cp) or the batch "
                    "(layout.microbatches) further",
                    session->config.compile.rank, tri_text_bytes((double)needed, text[0]),
                    tri_text_bytes((double)weights, text[1]),
                    grads ? "gradients" : "gradients in the place of activations",
                    tri_text_bytes((double)(grads ? grads : store->laid_grad_bytes), text[2]),
                    tri_text_bytes((double)optim, text[3]), tri_text_bytes((double)rest, text[4]),
                    tri_text_bytes((double)limit, text[5]));
}
