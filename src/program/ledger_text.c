/* The ledger for people: `trireme plan --ledger`. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "program/ledger.h"

static const struct {
    const char *name, *formula;
} items[TRI_NUM_BOOK] = {
    [TRI_BOOK_NORM_1] = {"input of the first norm", "e sbh"},
    [TRI_BOOK_QKV_IN] = {"input of the q, k, v products", "e sbh"},
    [TRI_BOOK_QKV] = {"q, k and v", "3e sbh"},
    [TRI_BOOK_SOFTMAX] = {"softmax of the scores", "e abs^2"},
    [TRI_BOOK_SOFTMAX_MASK] = {"mask of its dropout", "abs^2"},
    [TRI_BOOK_SOFTMAX_DROPPED] = {"softmax after dropout", "e abs^2"},
    [TRI_BOOK_PROJ_IN] = {"input of attention's last product", "e sbh"},
    [TRI_BOOK_ATTENTION_MASK] = {"mask of dropout after it", "sbh"},
    [TRI_BOOK_NORM_2] = {"input of the second norm", "e sbh"},
    [TRI_BOOK_FFN_IN] = {"input of the first MLP product", "e sbh"},
    [TRI_BOOK_ACT_IN] = {"input of the activation function", "e sbf"},
    [TRI_BOOK_ACT_OUT] = {"input of the second MLP product", "e sbf"},
    [TRI_BOOK_FFN_MASK] = {"mask of dropout after it", "sbh"},
};

static void title(const tri_ledger *ledger, int layer, tri_text *text)
{
    if (layer < 0)
        tri_text_add(text, "before the layers\n");
    else if (layer >= ledger->num_layers)
        tri_text_add(text, "after the layers\n");
    else
        tri_text_add(text, "layer %d\n", layer);
}

/* What a tensor is that is no item. */
static const char *other_meaning(const tri_ledger *ledger, const tri_ledger_entry *entry)
{
    const tri_program *program = ledger->program;
    const tri_shape *shape = &program->values[entry->value].shape;
    tri_op reader = program->instrs[entry->reader].op;
    if (reader == TRI_OP_ATTENTION_GRAD)
        return "beyond: log-sums of attention's rows";
    if (shape->rank > 0 && shape->dim[shape->rank - 1].name == TRI_DIM_STAT)
        return "beyond: statistics of a norm";
    if (reader == TRI_OP_SWIGLU_GRAD)
        return "beyond: second input of SwiGLU";
    if (reader == TRI_OP_RMSNORM_GRAD || reader == TRI_OP_LAYERNORM_GRAD)
        return "beyond: input of a norm";
    return "beyond";
}

static void print_entry(const tri_ledger *ledger, const tri_ledger_entry *entry, tri_text *text)
{
    const tri_program *program = ledger->program;
    const tri_value *value = &program->values[entry->value];
    const tri_instr *reader = &program->instrs[entry->reader];
    bool has_book = ledger->layers[entry->layer + 1].has_book;
    char shape[96], why[128], more[24] = "";
    if (entry->num_more)
        snprintf(more, sizeof more, " +%u", entry->num_more);
    snprintf(why, sizeof why, "%s%s", tri_op_get(reader->op)->name, more);
    tri_text_add(text, "  %-24s %-30s %-4s %13" PRIu64 "  %-26s %s\n", value->name,
                 tri_shape_text(&value->shape, shape, sizeof shape), tri_dtype_name(value->dtype),
                 entry->room, why,
                 entry->book < TRI_NUM_BOOK ? items[entry->book].name
                 : has_book                 ? other_meaning(ledger, entry)
                                            : "");
}

static const tri_ledger_entry *first_of(const tri_ledger *ledger, int layer)
{
    const tri_ledger_entry *entry = ledger->entries;
    while (entry < ledger->entries + ledger->num_entries && entry->layer < layer)
        entry++;
    return entry;
}

/* Whether a layer keeps the same as the one before it, under other names. */
static bool repeats(const tri_ledger *ledger, int layer)
{
    const tri_ledger_layer *one = &ledger->layers[layer], *two = &ledger->layers[layer + 1];
    if (layer < 1 || layer >= ledger->num_layers || one->num_entries != two->num_entries)
        return false;
    const tri_ledger_entry *a = first_of(ledger, layer - 1), *b = first_of(ledger, layer);
    for (uint32_t i = 0; i < two->num_entries; i++)
        if (a[i].book != b[i].book || a[i].room != b[i].room ||
            !tri_shape_equal(&ledger->program->values[a[i].value].shape,
                             &ledger->program->values[b[i].value].shape))
            return false;
    return true;
}

static void print_layers(const tri_ledger *ledger, tri_text *text)
{
    char size[16];
    tri_text_add(text, "  %-24s %-30s %-4s %13s  %-26s %s\n", "tensor", "shape", "type", "bytes",
                 "read by", "textbook");
    for (int l = -1; l <= ledger->num_layers; l++) {
        const tri_ledger_layer *layer = &ledger->layers[l + 1];
        if (layer->num_entries == 0)
            continue;
        const tri_ledger_entry *first = first_of(ledger, l);
        title(ledger, l, text);
        for (uint32_t i = 0; i < layer->num_entries; i++)
            print_entry(ledger, &first[i], text);
        tri_text_add(text, "  %-24s %-30s %-4s %13" PRIu64 "  %s\n", "in all", "", "", layer->kept,
                     tri_text_bytes((double)layer->kept, size));
        int last = l;
        while (repeats(ledger, last + 1))
            last++;
        if (last == l + 1)
            tri_text_add(text, "layer %d: the same\n", last);
        else if (last > l)
            tri_text_add(text, "layers %d to %d: the same each\n", l + 1, last);
        l = last;
    }
    tri_text_add(text, "%-62s %13" PRIu64 "  %s\n", "kept for the backward of one micro-batch",
                 ledger->kept, tri_text_bytes((double)ledger->kept, size));
}

/* Why an item is not stored, or not in this size. */
static const char *difference(const tri_ledger_layer *layer, tri_book book)
{
    bool less = layer->stored[book] < layer->book[book];
    switch (book) {
    case TRI_BOOK_SOFTMAX:
    case TRI_BOOK_SOFTMAX_DROPPED:
        return "fused attention makes the scores again, block by block";
    case TRI_BOOK_SOFTMAX_MASK:
    case TRI_BOOK_ATTENTION_MASK:
    case TRI_BOOK_FFN_MASK:
        return layer->drops ? "masks are made again from the random stream" : "there is no dropout";
    default:
        break;
    }
    if (less && layer->stored[book] > 0)
        return "keys and values are shared by several heads";
    if (less)
        return layer->redone ? "made again in the backward" : "the backward does not read it";
    return "put together from the pieces of all tp ranks";
}

static void print_book(const tri_ledger *ledger, int number, tri_text *text)
{
    const tri_ledger_layer *l = &ledger->layers[number + 1];
    char shares[96] = "";
    if (l->s_own != l->s)
        snprintf(shares, sizeof shares, " (s=%" PRId64 " between the blocks)", l->s_own);
    tri_text_add(text,
                 "\nlayer %d beside the textbook, on this rank: s=%" PRId64 "%s b=%" PRId64
                 " h=%" PRId64 " a=%" PRId64 " f=%" PRId64 " e=%" PRId64 "\n",
                 number, l->s, shares, l->b, l->h, l->a, l->f, l->e);
    if (l->f == 4 * l->h && l->a * l->k == l->h && l->s_own == l->s)
        tri_text_add(text, "  %d s*b*h + %d a*b*s^2 = %" PRIu64 " bytes\n", (int)(16 * l->e + 2),
                     (int)(2 * l->e + 1), tri_ledger_book_total(l));
    tri_text_add(text, "  %-36s %-8s %13s %13s  %s\n", "item", "formula", "textbook", "stored",
                 "difference");
    for (int i = 0; i < TRI_NUM_BOOK; i++)
        tri_text_add(text, "  %-36s %-8s %13" PRIu64 " %13" PRIu64 "  %s\n", items[i].name,
                     items[i].formula, l->book[i], l->stored[i],
                     l->stored[i] == l->book[i] ? "" : difference(l, (tri_book)i));
    tri_text_add(text, "  %-45s %13s %13" PRIu64 "\n", "tensors beyond the textbook", "",
                 l->others);
    tri_text_add(text, "  %-45s %13s %13" PRIu64 "\n", "places rounded to 64 bytes", "",
                 l->padding);
    tri_text_add(text,
                 "  textbook %" PRIu64 " - not stored %" PRIu64 " + beyond %" PRIu64 " = %" PRIu64
                 " as planned\n",
                 tri_ledger_book_total(l), tri_ledger_missing(l), tri_ledger_extra(l), l->kept);
}

void tri_ledger_text(const tri_ledger *ledger, tri_text *text)
{
    print_layers(ledger, text);
    for (int l = 0; l < ledger->num_layers; l++)
        if (ledger->layers[l + 1].has_book && !repeats(ledger, l))
            print_book(ledger, l, text);
}
