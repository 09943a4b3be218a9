/* trireme plan --json, and what it shares with others. */
#include <inttypes.h>
#include <math.h>

#include "cli/doc/docs.h"
#include "cli/memory.h"
#include "config/notes.h"
#include "program/ledger.h"

static void add_note(void *context, int row, const char *note)
{
    (void)row;
    tri_doc_text_item(context, note);
}

void tri_doc_notes(json_t *doc, const tr_settings *settings, const tri_session *session)
{
    tri_notes(settings, session, add_note, tri_doc_list(doc, "notes"));
}

void tri_doc_model(json_t *doc, const tri_session *session)
{
    const tri_compile_config *compile = &session->config.compile;
    json_t *model = tri_doc_object(doc, "model");
    tri_doc_text(model, "kind", compile->model.kind);
    tri_doc_count(model, "layers", compile->model.num_layers);
    tri_doc_count(model, "parameters", tri_param_total(&session->params));
    if (session->config.compile.model.moe.num_experts > 0)
        tri_doc_count(model, "active_parameters",
                      tri_moe_active(&session->config.compile.model.moe, &session->params));
    tri_doc_count(model, "tensors", (int64_t)session->params.count);
    tri_doc_count(doc, "num_ranks", tri_mesh_ranks(&compile->mesh));
    tri_doc_count(doc, "rank", compile->rank);
}

static void put_step(json_t *doc, const tri_session *s)
{
    const tri_compile_config *compile = &s->config.compile;
    const tri_program *program = &s->programs[TRI_PROGRAM_TRAIN];
    json_t *step = tri_doc_object(doc, "step");
    tri_doc_count(step, "rows", compile->batch);
    tri_doc_count(step, "seq_len", compile->seq_len);
    tri_doc_count(step, "microbatches", compile->num_microbatches);
    tri_doc_count(step, "microbatch_rows", tri_microbatch_rows(compile));
    tri_doc_number(step, "flops", tri_program_cost(program).flops);
    tri_doc_number(step, "recomputed_flops", tri_program_redone(program).flops);
    tri_doc_text(doc, "device", s->device.description);
}

static void put_bytes(json_t *object, const char *key, uint64_t bytes)
{
    tri_doc_count(object, key, (int64_t)bytes);
}

static uint64_t sum_of(const tri_slab slabs[TRI_NUM_SLABS])
{
    uint64_t sum = 0;
    for (int i = 0; i < TRI_NUM_SLABS; i++)
        sum += slabs[i].bytes;
    return sum;
}

static void put_memory(json_t *doc, const tri_session *s)
{
    const tri_store *store = &s->store;
    tri_memory_overhead overhead = tri_memory_overhead_of(s);
    uint64_t host = sum_of(store->host);
    uint64_t exact = store->scratch_bytes + store->sums.bytes + sum_of(store->slabs) +
                     (s->device.def->queue ? 0 : host);
    json_t *memory = tri_doc_object(doc, "memory");
    put_bytes(memory, "param_bytes", store->slabs[TRI_SLAB_PARAM].bytes);
    put_bytes(memory, "copy_bytes", store->slabs[TRI_SLAB_COPY].bytes);
    put_bytes(memory, "grad_bytes", store->slabs[TRI_SLAB_GRAD].bytes);
    put_bytes(memory, "grad_in_shared_bytes", store->laid_grad_bytes);
    put_bytes(memory, "optim_bytes", store->slabs[TRI_SLAB_OPTIM].bytes);
    put_bytes(memory, "shared_bytes", store->slabs[TRI_SLAB_SHARED].bytes);
    put_bytes(memory, "host_bytes", host);
    put_bytes(memory, "file_bytes", sum_of(store->file));
    put_bytes(memory, "scratch_bytes", store->scratch_bytes);
    if (store->sums.bytes)
        put_bytes(memory, "sums_bytes", store->sums.bytes);
    put_bytes(memory, "rounding_bytes", tri_store_total(store) - exact);
    put_bytes(memory, "plan_bytes", tri_store_total(store));
    put_bytes(memory, "heap_bytes", overhead.heap);
    put_bytes(memory, "threads_bytes", overhead.threads);
    put_bytes(memory, "overhead_bytes", overhead.fixed);
    put_bytes(memory, "expected_bytes",
              tri_store_total(store) + tri_memory_overhead_total(&overhead));
}

static void put_shape(json_t *object, const tri_shape *shape)
{
    json_t *list = tri_doc_list(object, "shape"), *dims = tri_doc_list(object, "dims");
    for (int i = 0; i < shape->rank; i++) {
        json_array_append_new(list, json_integer(shape->dim[i].size));
        tri_doc_text_item(dims, tri_dim_letter(shape->dim[i].name));
    }
}

static void put_params(json_t *doc, const tri_param_table *params)
{
    static const char *const roles[] = {"embedding", "matrix", "bias", "norm"};
    json_t *list = tri_doc_list(doc, "parameters");
    for (size_t i = 0; i < params->count; i++) {
        json_t *item = tri_doc_item(list);
        tri_doc_text(item, "name", params->items[i].name);
        put_shape(item, &params->items[i].shape);
        tri_doc_count(item, "elements", tri_shape_count(&params->items[i].shape));
        tri_doc_text(item, "role", roles[params->items[i].role]);
    }
}

static tr_status put_ledger(json_t *doc, const tri_program *program, tr_error *err)
{
    tri_ledger ledger;
    TRI_TRY(tri_ledger_make(program, &ledger, err));
    json_t *list = tri_doc_list(doc, "kept");
    for (size_t i = 0; i < ledger.num_entries; i++) {
        const tri_ledger_entry *entry = &ledger.entries[i];
        json_t *item = tri_doc_item(list);
        tri_doc_text(item, "name", program->values[entry->value].name);
        tri_doc_count(item, "layer", entry->layer);
        put_bytes(item, "bytes", entry->bytes);
        put_bytes(item, "room_bytes", entry->room);
        tri_doc_count(item, "read_by_instruction", entry->reader);
    }
    put_bytes(doc, "kept_bytes", ledger.kept);
    json_t *layers = tri_doc_list(doc, "layers");
    for (int l = -1; l <= ledger.num_layers; l++) {
        const tri_ledger_layer *layer = &ledger.layers[l + 1];
        json_t *item = tri_doc_item(layers);
        tri_doc_count(item, "layer", l);
        put_bytes(item, "kept_bytes", layer->kept);
        if (layer->has_book)
            put_bytes(item, "textbook_bytes", tri_ledger_book_total(layer));
        else
            tri_doc_null(item, "textbook_bytes");
    }
    tri_ledger_fini(&ledger);
    return TR_OK;
}

tr_status tri_doc_plan(json_t *doc, const tri_session *s, bool params, bool ledger, tr_error *err)
{
    tri_doc_model(doc, s);
    put_step(doc, s);
    put_memory(doc, s);
    if (params)
        put_params(doc, &s->params);
    return ledger ? put_ledger(doc, &s->programs[TRI_PROGRAM_TRAIN], err) : TR_OK;
}
