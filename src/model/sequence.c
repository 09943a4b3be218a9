#include "model/sequence.h"

tri_batch_inputs tri_sequence_inputs(tri_graph *graph, const tri_batch_shape *batch)
{
    tri_shape bt = tri_shape_of(2, TRI_DIM_B, batch->rows, TRI_DIM_T, batch->seq_len);
    tri_shape b = tri_shape_of(1, TRI_DIM_B, batch->rows);
    tri_shape one = tri_shape_of(1, TRI_DIM_N, (int64_t)1);
    tri_shape places = tri_shape_of(2, TRI_DIM_B, batch->rows, TRI_DIM_P, batch->seq_len);
    tri_shape spans =
        tri_shape_of(3, TRI_DIM_B, batch->rows, TRI_DIM_P, batch->seq_len, TRI_DIM_N, (int64_t)2);
    bool docs = batch->mask_documents && !batch->by_place;
    bool span = batch->mask_documents && batch->by_place;
    return (tri_batch_inputs){
        .tokens = tri_graph_input(graph, "tokens", TRI_I32, bt, true),
        .positions = tri_graph_input(graph, "positions", TRI_I32, bt, true),
        .rows = tri_graph_input(graph, "rows", TRI_I32, b, true),
        .step = tri_graph_input(graph, "step", TRI_I32, one, false),
        .docs = docs ? tri_graph_input(graph, "docs", TRI_I32, bt, true) : TRI_NONE,
        .targets = TRI_NONE,
        .index = TRI_NONE,
        .places =
            batch->placed ? tri_graph_input(graph, "places", TRI_I32, places, true) : TRI_NONE,
        .span = span ? tri_graph_input(graph, "span", TRI_I32, spans, true) : TRI_NONE,
        .by_place = batch->by_place,
    };
}

void tri_finish_logits(tri_graph *graph, tri_mode mode, tri_id logits, tri_shape targets)
{
    if (mode == TRI_MODE_TRAIN || mode == TRI_MODE_EVAL) {
        const tri_head_config held_out = {.num_stats = 1, .stat = {TRI_STAT_HITS}};
        tri_cross_entropy(graph, logits, tri_graph_input(graph, "targets", TRI_I32, targets, true),
                          mode == TRI_MODE_EVAL ? &held_out : &graph->head);
        return;
    }
    if (logits != TRI_NONE &&
        tri_value_at(graph, logits)->dtype != TRI_F32) /* the host reads f32 */
        logits =
            tri_node_out(graph,
                         tri_graph_emit(graph, TRI_OP_CAST, tri_graph_name(graph, "logits"),
                                        &(tri_attr){.cast = {.dtype = TRI_F32}}, &logits, 1, 1),
                         0);
    tri_mark_output(graph, logits);
}

void tri_language_head(tri_graph *graph, tri_mode mode, const tri_batch_shape *batch,
                       const char *weight, tri_id x)
{
    if (mode == TRI_MODE_PREDICT || mode == TRI_MODE_PREFILL) {
        tri_shape b = tri_shape_of(1, TRI_DIM_B, batch->rows);
        tri_id index = tri_graph_input(graph, "index", TRI_I32, b, true);
        x = tri_select_row(graph, "last", x, index, NULL);
    }
    tri_shape bt = tri_shape_of(2, TRI_DIM_B, batch->rows, TRI_DIM_T, batch->seq_len);
    tri_finish_logits(graph, mode, tri_linear_tied(graph, "logits", weight, x), bt);
}

tr_status tri_check_heads(const tri_model_config *m, tr_error *err)
{
    if (m->dim % m->num_heads == 0)
        return TR_OK;
    int64_t heads = m->num_heads;
    while (m->dim % heads != 0)
        heads--;
    return tri_fail(err, TR_ERROR_INPUT,
                    "model.num_heads is %lld, which does not divide model.dim %lld; the nearest "
                    "that does is %lld",
                    (long long)m->num_heads, (long long)m->dim, (long long)heads);
}

tr_status tri_check_positions(const tri_model_config *m, const tri_batch_shape *batch,
                              tr_error *err)
{
    if (batch->seq_len <= m->positions)
        return TR_OK;
    return tri_fail(err, TR_ERROR_INPUT,
                    "data.seq_len is %lld but the model has positions for %lld; lower it, or set "
                    "model.positions",
                    (long long)batch->seq_len, (long long)m->positions);
}
