/* The mesh of a layout, and which piece of a value every rank has.
 *
 * A value is named by its name in the program. Where several of one name lie differently (a
 * gradient before and after its sum) the second is NAME~2, and so on, in the order of ranks and of
 * each program. Each rank's piece is read off its own program. */
#include <stdlib.h>
#include <string.h>

#include "cli/doc/docs.h"
#include "cli/view/view_parts.h"

enum { TEXT = 400, MOST_WAYS = 16 };

/* How values of one name lie. */
typedef struct value_way {
    const char *name;
    tri_placement at;
    tri_shape whole;
    bool divided; /* into slices */
    const char *kind;
    tri_dtype dtype;
    const tri_grid *grid;
} value_way;

static const tri_program *program_of(const tri_view_layout *layout, int rank)
{
    return &layout->session[rank]->session.programs[TRI_PROGRAM_TRAIN];
}

static const char *kind_of(const tri_program *program, const tri_value *value)
{
    static const char *const kinds[TRI_NUM_STATE_KINDS] = {"parameter", "copy",      "gradient",
                                                           "moment",    "statistic", "cache"};
    if (value->state != TRI_NONE)
        return kinds[program->states[value->state].kind];
    return value->kind == TRI_VALUE_INPUT       ? "input"
           : strncmp(value->name, "d.", 2) == 0 ? "gradient"
                                                : "activation";
}

/* What this rank has of a tensor that ranks divide as one row of numbers; NULL: it has a box. What
 * a sum over ranks leaves in place is complete in this rank's slice alone. */
static const tri_flat *flat_of(const tri_program *program, tri_id id)
{
    const tri_value *value = &program->values[id];
    if (value->flat.parts > 1)
        return &value->flat;
    for (size_t i = 0; value->bucket > 0 && i < program->num_instrs; i++) {
        const tri_instr *instr = &program->instrs[i];
        if (instr->op == TRI_OP_SHARD_SUM && instr->num_out == 1 && instr->out[0].value == id)
            return value->place.parts > 1 ? &value->place : NULL;
    }
    return NULL;
}

/* Where a value lies, if it lies anywhere: false for what was fused away. */
static bool way_of(const tri_program *program, tri_id id, value_way *way)
{
    const tri_value *value = &program->values[id];
    bool placed = value->whole.rank > 0 || program->grid.num_factors == 0;
    if (!placed || program->home[id].space == TRI_NONE || !value->name)
        return false;
    *way = (value_way){.name = value->name,
                       .at = value->at,
                       .whole = value->whole.rank > 0 ? value->whole : value->shape,
                       .divided = flat_of(program, id) != NULL,
                       .kind = kind_of(program, value),
                       .dtype = value->dtype,
                       .grid = &program->grid};
    return true;
}

static bool same_way(const value_way *a, const value_way *b)
{
    return a->divided == b->divided && strcmp(a->name, b->name) == 0 &&
           tri_placement_equal(&a->at, &b->at) && tri_shape_equal(&a->whole, &b->whole);
}

/* "[V@tp 256, D 64] in slices" */
static char *way_text(const value_way *way, char text[TEXT])
{
    tri_placement_text(way->grid, &way->at, &way->whole, text, TEXT - 16);
    return way->divided ? strcat(text, " in slices") : text;
}

/* ---- the mesh ---- */

/* Of every way a value can lie, once: the key is its address. */
static void put_values(json_t *doc, const tri_view_layout *layout)
{
    json_t *list = tri_doc_list(doc, "values"), *ways = json_object(), *counts = json_object();
    bool cut = false;
    for (int r = 0; r < layout->num_ranks && !cut; r++) {
        const tri_program *program = program_of(layout, r);
        for (tri_id v = 0; v < program->num_values && !cut; v++) {
            char text[TEXT], key[2 * TEXT];
            value_way way;
            if (!way_of(program, v, &way))
                continue;
            way_text(&way, text);
            snprintf(key, sizeof key, "%.300s %s", way.name, text);
            if (json_object_get(ways, key))
                continue;
            json_object_set_new(ways, key, json_true());
            json_int_t nth = json_integer_value(json_object_get(counts, way.name)) + 1;
            json_object_set_new(counts, way.name, json_integer(nth));
            if (nth > 1)
                snprintf(key, sizeof key, "%.300s~%d", way.name, (int)nth);
            cut = nth > MOST_WAYS || json_array_size(list) >= TRI_VIEW_VALUES;
            json_t *item = cut ? NULL : tri_doc_item(list);
            tri_doc_text(item, "value", nth > 1 ? key : way.name);
            tri_doc_text(item, "kind", way.kind);
            tri_doc_text(item, "placement", text);
        }
    }
    tri_doc_flag(doc, "cut", cut);
    json_decref(ways);
    json_decref(counts);
}

static void put_ranks(json_t *doc, const tri_mesh *mesh, const tri_axis *axes, int num)
{
    json_t *list = tri_doc_list(doc, "axes");
    for (int i = 0; i < num; i++) {
        json_t *item = tri_doc_item(list);
        tri_doc_text(item, "name", tri_axis_name(axes[i]));
        tri_doc_count(item, "size", tri_mesh_size(mesh, axes[i]));
    }
    list = tri_doc_list(doc, "ranks");
    for (int r = 0; r < tri_mesh_ranks(mesh); r++) {
        json_t *item = tri_doc_item(list);
        tri_doc_count(item, "rank", r);
        for (int i = 0; i < num; i++)
            tri_doc_count(item, tri_axis_name(axes[i]), tri_mesh_coordinate(mesh, r, axes[i]));
    }
}

static void put_params(json_t *doc, const tri_session *session)
{
    static const char *const roles[] = {"embedding", "matrix",  "bias",   "norm",
                                        "router",    "experts", "steered"};
    json_t *list = tri_doc_list(doc, "parameters");
    for (size_t i = 0; i < session->params.count && i < TRI_VIEW_VALUES; i++) {
        const tri_param *param = &session->params.items[i];
        char shape[128];
        json_t *item = tri_doc_item(list);
        tri_doc_text(item, "name", param->name);
        tri_doc_text(item, "shape", tri_shape_text(&param->shape, shape, sizeof shape));
        tri_doc_count(item, "elements", tri_shape_count(&param->shape));
        tri_doc_text(item, "role", roles[param->role]);
        tri_doc_count(item, "layer", param->layer);
    }
}

static void put_layout(json_t *doc, const tri_view_layout *layout)
{
    const tr_settings *settings = layout->cli.settings;
    json_t *object = tri_doc_object(doc, "layout");
    static const char *const names[] = {"dp", "cp", "tp", "pp", "ep", "zero", "microbatches"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char setting[40];
        snprintf(setting, sizeof setting, "layout.%s", names[i]);
        tri_doc_count(object, names[i], tr_settings_int(settings, setting));
    }
    tri_doc_flag(object, "sp", tr_settings_bool(settings, "layout.sp"));
    tri_doc_text(object, "schedule", tr_settings_string(settings, "layout.schedule"));
    tri_doc_count(object, "batch", tr_settings_int(settings, "train.batch"));
}

tr_status tri_view_settings(tri_view *view, const tri_http_target *query, json_t *doc,
                            tr_error *err)
{
    tri_view_layout *layout;
    TRI_TRY(tri_view_layout_of(view, query, &layout, err));
    tri_view_put_recipes(view, doc);
    tri_doc_count(doc, "num_ranks", layout->num_ranks);
    put_layout(doc, layout);
    return TR_OK;
}

tr_status tri_view_mesh(tri_view *view, const tri_http_target *query, json_t *doc, tr_error *err)
{
    static const tri_axis axes[] = {TRI_AXIS_PP, TRI_AXIS_DP, TRI_AXIS_CP, TRI_AXIS_TP,
                                    TRI_AXIS_EP};
    tri_view_layout *layout;
    TRI_TRY(tri_view_layout_of(view, query, &layout, err));
    TRI_TRY(tri_view_compile_all(layout, err));
    const tri_session *session = &layout->session[0]->session;
    tri_view_put_recipes(view, doc);
    tri_doc_model(doc, session);
    put_layout(doc, layout);
    put_ranks(doc, &session->config.compile.mesh, axes, sizeof axes / sizeof *axes);
    put_params(doc, session);
    put_values(doc, layout);
    return TR_OK;
}

/* ---- one value ---- */

/* "NAME~2": the second way in which values of that name lie. */
static bool split_value(const char *text, char *name, size_t size, int *nth)
{
    const char *tilde = strrchr(text, '~');
    size_t length = tilde ? (size_t)(tilde - text) : strlen(text);
    if (length == 0 || length >= size)
        return false;
    memcpy(name, text, length);
    name[length] = 0;
    *nth = tilde ? atoi(tilde + 1) : 1;
    return *nth >= 1 && *nth <= MOST_WAYS;
}

static bool find_way(const tri_view_layout *layout, const char *name, int nth, value_way *found)
{
    value_way ways[MOST_WAYS], way;
    int num = 0;
    for (int r = 0; r < layout->num_ranks; r++) {
        const tri_program *program = program_of(layout, r);
        for (tri_id v = 0; v < program->num_values; v++) {
            bool fresh = program->values[v].name && strcmp(program->values[v].name, name) == 0 &&
                         way_of(program, v, &way);
            for (int w = 0; w < num && fresh; w++)
                fresh = !same_way(&ways[w], &way);
            if (!fresh)
                continue;
            ways[num++] = way;
            if (num == nth)
                *found = way;
            if (num == nth)
                return true;
        }
    }
    return false;
}

static void put_piece(json_t *item, const tri_program *program, tri_id id)
{
    const tri_value *value = &program->values[id];
    const tri_flat *flat = flat_of(program, id);
    tri_shape whole = value->whole.rank > 0 ? value->whole : value->shape;
    json_t *begins = tri_doc_list(item, "begin"), *sizes = tri_doc_list(item, "size");
    int64_t elements = 1, first = 0, begin;
    for (int d = 0; d < whole.rank; d++) {
        int64_t size =
            tri_placement_piece(&program->grid, &value->at.dim[d], whole.dim[d], NULL, &begin);
        json_array_append_new(begins, json_integer(begin));
        json_array_append_new(sizes, json_integer(size));
        elements *= size;
    }
    if (flat) {
        elements = tri_flat_slice(flat, flat->part, &first);
        tri_doc_count(item, "first", first);
    }
    tri_doc_count(item, "elements", elements);
    tri_doc_count(item, "bytes", (int64_t)tri_dtype_size(value->dtype, elements));
    tri_doc_count(item, "term", tri_grid_place(&program->grid, value->at.partial));
}

static void put_pieces(json_t *doc, const tri_view_layout *layout, const value_way *way)
{
    json_t *list = tri_doc_list(doc, "ranks");
    for (int r = 0; r < layout->num_ranks; r++) {
        const tri_program *program = program_of(layout, r);
        json_t *item = tri_doc_item(list);
        value_way own;
        tri_doc_count(item, "rank", r);
        for (tri_id v = 0; v < program->num_values; v++) {
            const char *name = program->values[v].name;
            if (!name || strcmp(name, way->name) != 0 || !way_of(program, v, &own) ||
                !same_way(&own, way))
                continue;
            put_piece(item, program, v);
            break;
        }
    }
}

tr_status tri_view_placement(tri_view *view, const tri_http_target *query, json_t *doc,
                             tr_error *err)
{
    const char *value = tri_http_target_arg(query, "value");
    tri_view_layout *layout;
    value_way way;
    char name[TEXT], text[TEXT];
    int nth;
    TRI_TRY(tri_view_layout_of(view, query, &layout, err));
    TRI_TRY(tri_view_compile_all(layout, err));
    if (!value || !split_value(value, name, sizeof name, &nth) ||
        !find_way(layout, name, nth, &way))
        return tri_fail(err, TR_ERROR_INPUT,
                        "there is no value \"%.80s\" in this layout; /api/view/mesh lists them",
                        value ? value : "");
    tri_doc_text(doc, "value", value);
    tri_doc_text(doc, "kind", way.kind);
    tri_doc_text(doc, "dtype", tri_dtype_name(way.dtype));
    tri_doc_text(doc, "placement", way_text(&way, text));
    tri_doc_flag(doc, "divided", way.divided);
    tri_doc_count(doc, "terms", tri_grid_size(way.grid, way.at.partial));
    json_t *dims = tri_doc_list(doc, "dims");
    for (int d = 0; d < way.whole.rank; d++) {
        json_t *item = tri_doc_item(dims);
        tri_doc_text(item, "name", tri_dim_letter(way.whole.dim[d].name));
        tri_doc_count(item, "size", way.whole.dim[d].size);
    }
    tri_doc_count(doc, "elements", tri_shape_count(&way.whole));
    put_pieces(doc, layout, &way);
    return TR_OK;
}
