/* trireme plan --page: what the page of a run shows of its plan, in little room. */
#include <stdlib.h>
#include <string.h>

#include "cli/doc/docs.h"
#include "program/messages.h"

enum { MOST_BOXES = 5000, MOST_SUMS = 256 };

/* ---- memory by class and place ---- */

static void add_class(json_t *list, const char *class, tri_where where, uint64_t bytes)
{
    size_t i;
    json_t *item;
    if (bytes == 0)
        return;
    json_array_foreach(list, i, item)
    {
        const char *name = json_string_value(json_object_get(item, "class"));
        const char *place = json_string_value(json_object_get(item, "place"));
        if (name && place && strcmp(name, class) == 0 &&
            strcmp(place, tri_where_name(where)) == 0) {
            bytes += (uint64_t)json_integer_value(json_object_get(item, "bytes"));
            tri_doc_count(item, "bytes", (int64_t)bytes);
            return;
        }
    }
    item = tri_doc_item(list);
    tri_doc_text(item, "class", class);
    tri_doc_text(item, "place", tri_where_name(where));
    tri_doc_count(item, "bytes", (int64_t)bytes);
}

/* What the shared slab holds while training. */
static uint64_t add_shared(json_t *list, const tri_program *program)
{
    uint64_t sum = 0;
    for (size_t s = 0; s < program->num_spaces; s++) {
        const tri_space *space = &program->spaces[s];
        if (tri_slab_of(space->kind) != TRI_SLAB_SHARED || space->where != TRI_WHERE_DEVICE)
            continue;
        add_class(list,
                  space->kind == TRI_SPACE_FRAME      ? "activations"
                  : space->kind == TRI_SPACE_GATHERED ? "gathered weights"
                  : space->kind == TRI_SPACE_WORK     ? "workspace"
                  : space->kind == TRI_SPACE_BATCH    ? "inputs"
                                                      : "small",
                  TRI_WHERE_DEVICE, tri_space_total(space));
        sum += tri_space_total(space);
    }
    return sum;
}

static void put_classes(json_t *doc, const tri_session *s)
{
    static const char *const names[TRI_NUM_SLABS] = {"weights",         "16-bit copies",
                                                     "gradients",       "optimizer state",
                                                     "keys and values", "copies on their way"};
    const tri_store *store = &s->store;
    json_t *list = tri_doc_list(doc, "memory");
    for (int i = 0; i < TRI_SLAB_SHARED; i++)
        add_class(list, names[i], TRI_WHERE_DEVICE, store->slabs[i].bytes);
    uint64_t shared = store->slabs[TRI_SLAB_SHARED].bytes;
    uint64_t training = add_shared(list, &s->programs[TRI_PROGRAM_TRAIN]);
    if (shared > training)
        add_class(list, "other programs", TRI_WHERE_DEVICE, shared - training);
    add_class(list, "kernels' scratch", TRI_WHERE_DEVICE, store->scratch_bytes);
    for (int i = 0; i < TRI_NUM_SLABS; i++)
        add_class(list, names[i], TRI_WHERE_HOST, store->host[i].bytes);
    for (int i = 0; i < TRI_NUM_SLABS; i++)
        add_class(list, names[i], TRI_WHERE_FILE, store->file[i].bytes);
}

/* ---- messages by axis and operation ---- */

typedef struct message_sum {
    const char *axis;
    tri_message_kind kind;
    uint64_t bytes, calls;
} message_sum;

static void add_message(message_sum *sums, size_t *num, const char *axis, tri_message_kind kind,
                        uint64_t bytes)
{
    size_t i = 0;
    while (i < *num && (sums[i].kind != kind || strcmp(sums[i].axis, axis) != 0))
        i++;
    if (i == MOST_SUMS)
        return;
    if (i == *num)
        sums[(*num)++] = (message_sum){axis, kind, 0, 0};
    sums[i].bytes += bytes;
    sums[i].calls++;
}

static void put_messages(json_t *doc, const tri_program *p)
{
    message_sum sums[MOST_SUMS];
    size_t num = 0;
    json_t *list = tri_doc_list(doc, "messages");
    for (size_t c = 0; c < p->num_calls; c++) {
        const tri_segment *segment = &p->segments[p->calls[c].segment];
        for (uint32_t i = segment->first; i < segment->first + segment->count; i++) {
            const tri_instr *instr = &p->instrs[i];
            if (instr->message == TRI_NONE || !tri_call_runs(&p->calls[c], instr) ||
                !tri_instr_leads(p, i))
                continue;
            const tri_message *m = &p->messages[instr->message];
            const char *axis = m->group == TRI_NONE ? "between places" : p->groups[m->group].name;
            add_message(sums, &num, axis, m->kind, tri_message_bytes(m));
        }
    }
    for (size_t i = 0; i < num; i++) {
        json_t *item = tri_doc_item(list);
        tri_doc_text(item, "axis", sums[i].axis);
        tri_doc_text(item, "operation", tri_message_kind_name(sums[i].kind));
        tri_doc_count(item, "bytes", (int64_t)sums[i].bytes);
        tri_doc_count(item, "calls", (int64_t)sums[i].calls);
    }
}

/* ---- addresses over instructions ---- */

typedef struct address_box {
    tri_id value;
    uint32_t space, first, last;
    uint64_t offset, bytes;
} address_box;

static int larger_first(const void *left, const void *right)
{
    const address_box *a = left, *b = right;
    if (a->bytes != b->bytes)
        return a->bytes > b->bytes ? -1 : 1;
    if (a->space != b->space)
        return a->space < b->space ? -1 : 1;
    if (a->offset != b->offset)
        return a->offset < b->offset ? -1 : 1;
    return a->value < b->value ? -1 : a->value > b->value;
}

static bool stays(tri_space_kind kind)
{
    return kind <= TRI_SPACE_CACHE;
}

static void stretch(address_box *boxes, const tri_operand *operands, int num, uint32_t instr)
{
    for (int i = 0; i < num; i++) {
        if (operands[i].value == TRI_NONE)
            continue;
        address_box *b = &boxes[operands[i].value];
        b->first = instr < b->first ? instr : b->first;
        b->last = instr > b->last ? instr : b->last;
    }
}

/* One for each value that has a home, in order of size; versions of a state are one. */
static size_t make_boxes(const tri_program *p, address_box *boxes)
{
    size_t num = 0;
    for (size_t v = 0; v < p->num_values; v++)
        boxes[v] = (address_box){.value = (tri_id)v,
                                 .space = p->home[v].space,
                                 .first = UINT32_MAX,
                                 .offset = p->home[v].offset,
                                 .bytes = tri_value_bytes(&p->values[v])};
    for (uint32_t i = 0; i < p->num_instrs; i++) {
        stretch(boxes, p->instrs[i].in, p->instrs[i].num_in, i);
        stretch(boxes, p->instrs[i].out, p->instrs[i].num_out, i);
    }
    for (size_t v = 0; v < p->num_values; v++) {
        address_box b = boxes[v];
        if (b.space == TRI_NONE || b.bytes == 0 || b.first == UINT32_MAX)
            continue;
        if (stays(p->spaces[b.space].kind)) {
            b.first = 0;
            b.last = (uint32_t)p->num_instrs - 1;
        }
        boxes[num++] = b;
    }
    qsort(boxes, num, sizeof *boxes, larger_first);
    size_t kept = 0;
    for (size_t i = 0; i < num; i++) {
        const address_box *before = kept > 0 ? &boxes[kept - 1] : NULL;
        bool again = before && stays(p->spaces[boxes[i].space].kind) &&
                     before->space == boxes[i].space && before->offset == boxes[i].offset;
        if (!again)
            boxes[kept++] = boxes[i];
    }
    return kept;
}

/* Spaces stand one above the other. */
static void put_spaces(json_t *root, const tri_program *p)
{
    json_t *list = tri_doc_list(root, "spaces"), *segments = tri_doc_list(root, "segments");
    uint64_t base = 0;
    char name[24];
    for (size_t s = 0; s < p->num_spaces; s++) {
        json_t *item = tri_doc_item(list);
        tri_doc_text(item, "name", p->spaces[s].name);
        tri_doc_text(item, "place", tri_where_name(p->spaces[s].where));
        tri_doc_count(item, "base", (int64_t)base);
        tri_doc_count(item, "bytes", (int64_t)p->spaces[s].bytes);
        tri_doc_count(item, "instances", p->spaces[s].num_instances);
        base += p->spaces[s].bytes;
    }
    tri_doc_count(root, "bytes", (int64_t)base);
    for (size_t s = 0; s < p->num_segments; s++) {
        json_t *item = tri_doc_item(segments);
        tri_doc_text(item, "name", tri_segment_text(p, &p->segments[s], name));
        tri_doc_count(item, "first", p->segments[s].first);
        tri_doc_count(item, "instructions", p->segments[s].count);
    }
}

static tr_status put_boxes(json_t *doc, const tri_program *p, tr_error *err)
{
    address_box *boxes = calloc(p->num_values + 1, sizeof *boxes);
    if (!boxes)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for the addresses of a step");
    size_t num = make_boxes(p, boxes);
    json_t *root = tri_doc_object(doc, "addresses");
    put_spaces(root, p);
    tri_doc_count(root, "instructions", (int64_t)p->num_instrs);
    json_t *rows = tri_doc_list(root, "rows");
    for (size_t i = 0; i < num && i < MOST_BOXES; i++) {
        json_t *item = tri_doc_item(rows);
        tri_doc_text(item, "space", p->spaces[boxes[i].space].name);
        tri_doc_text(item, "name", p->values[boxes[i].value].name);
        tri_doc_count(item, "offset", (int64_t)boxes[i].offset);
        tri_doc_count(item, "bytes", (int64_t)boxes[i].bytes);
        tri_doc_count(item, "first", boxes[i].first);
        tri_doc_count(item, "last", boxes[i].last);
    }
    tri_doc_flag(root, "cut", num > MOST_BOXES);
    free(boxes);
    return TR_OK;
}

tr_status tri_doc_page(json_t *doc, const tri_session *s, tr_error *err)
{
    tri_doc_count(doc, "rank", s->config.compile.rank);
    put_classes(doc, s);
    put_messages(doc, &s->programs[TRI_PROGRAM_TRAIN]);
    return put_boxes(doc, &s->programs[TRI_PROGRAM_TRAIN], err);
}
