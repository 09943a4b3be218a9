#include "data/source/example_set.h"
#include "base/text.h"

#include "base/arena.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

tr_status tri_example_set_init(tri_example_set *set, const tri_data_config *config, tr_error *err)
{
    *set = (tri_example_set){
        .source = config->source, .seq_len = config->seq_len, .seed = config->seed};
    bool bytes = !config->tokenizer || !config->tokenizer[0];
    tr_status status =
        tri_tokenizer_open(bytes ? "bytes" : config->tokenizer, &set->tokenizer, err);
    if (status != TR_OK)
        return tri_fail_prefix(err, status, "data.tokenizer");
    set->vocab = tri_tokenizer_vocab(set->tokenizer);
    return TR_OK;
}

void tri_example_set_fini(tri_example_set *set)
{
    tri_tokenizer_close(set->tokenizer);
    tri_ids_fini(&set->ids);
    free(set->types);
    free(set->item);
    free(set->order);
    free(set->row_begin);
    *set = (tri_example_set){0};
}

static tr_status no_memory(const tri_example_set *set, tr_error *err)
{
    return tri_fail(err, TR_ERROR_RUNTIME, "%s: out of memory for its examples", set->source);
}

tr_status tri_example_set_add(tri_example_set *set, const tri_example *example, tr_error *err)
{
    tri_example *grown = tri_array_grow(set->item, set->num, &set->capacity, sizeof *grown);
    if (grown)
        set->item = grown;
    if (!grown || set->ids.failed || set->num >= UINT32_MAX - 1)
        return no_memory(set, err);
    grown[set->num] = *example;
    grown[set->num].begin = set->ids.num - (size_t)example->num;
    set->num++;
    return TR_OK;
}

/* ---- rows ---- */

/* How many examples are held out. */
static tr_status count_held_out(const tri_example_set *set, double fraction, size_t *num,
                                tr_error *err)
{
    if (set->num == 0)
        return tri_fail(err, TR_ERROR_INPUT,
                        "%s: no example is left: all %lld are longer than data.seq_len = %lld; "
                        "raise it",
                        set->source, (long long)set->num_dropped, (long long)set->seq_len);
    *num = (size_t)(fraction * (double)set->num);
    if (fraction > 0 && *num == 0)
        *num = 1;
    if (*num < set->num)
        return TR_OK;
    return tri_fail(err, TR_ERROR_INPUT,
                    "%s: of its %zu example%s data.eval_fraction = %g leaves none to train on; set "
                    "data.eval_fraction to 0, or give more",
                    set->source, set->num, set->num == 1 ? "" : "s", fraction);
}

static size_t pack_rows(tri_example_set *set, size_t from, size_t num, size_t *begin)
{
    int32_t *places = malloc(num * sizeof *places);
    size_t rows = 0;
    for (size_t i = 0; places && i < num; i++)
        places[i] = set->item[set->order[from + i]].places;
    if (places)
        rows = tri_pack(places, set->order + from, num, set->seq_len, from, begin);
    free(places);
    return rows;
}

/* The rows of order[from .. from + num), behind num_before others. */
static size_t make_rows(tri_example_set *set, size_t from, size_t num, size_t num_before, bool pack)
{
    if (num == 0)
        return 0;
    if (pack)
        return pack_rows(set, from, num, set->row_begin + num_before);
    for (size_t i = 0; i < num; i++)
        set->row_begin[num_before + i] = from + i;
    return num;
}

/* Nothing is added any more. A block that cannot be made smaller stays as it is. */
static void let_go(tri_example_set *set)
{
    int32_t *ids = realloc(set->ids.id, (set->ids.num + 1) * sizeof *ids);
    tri_example *item = realloc(set->item, (set->num + 1) * sizeof *item);
    set->ids.id = ids ? ids : set->ids.id;
    set->item = item ? item : set->item;
    tri_tokenizer_close(set->tokenizer);
    set->tokenizer = NULL;
}

tr_status tri_example_set_rows(tri_example_set *set, const tri_data_config *config, tr_error *err)
{
    enum { HELD_OUT_SEED = 0 };
    size_t num_eval = 0;
    TRI_TRY(count_held_out(set, config->eval_fraction, &num_eval, err));
    set->order = malloc(set->num * sizeof *set->order);
    set->row_begin = malloc((set->num + 1) * sizeof *set->row_begin);
    if (!set->order || !set->row_begin)
        return no_memory(set, err);
    for (size_t i = 0; i < set->num; i++)
        set->order[i] = (uint32_t)tri_data_shuffle(HELD_OUT_SEED, 0, set->num, i);
    size_t eval = make_rows(set, 0, num_eval, 0, config->pack);
    size_t train = make_rows(set, num_eval, set->num - num_eval, eval, config->pack);
    if (train == 0 || (eval == 0 && num_eval > 0))
        return no_memory(set, err);
    set->row_begin[eval + train] = set->num;
    set->num_rows[TRI_SPLIT_EVAL] = eval;
    set->num_rows[TRI_SPLIT_TRAIN] = train;
    let_go(set);
    return TR_OK;
}

uint64_t tri_example_set_window(const tri_example_set *set, tri_split split, uint64_t sample)
{
    uint64_t num = set->num_rows[split];
    return split == TRI_SPLIT_EVAL ? sample % num
                                   : tri_data_shuffle(set->seed, sample / num, num, sample % num);
}

const uint32_t *tri_example_set_row(const tri_example_set *set, tri_split split, uint64_t window,
                                    size_t *num)
{
    uint64_t row = split == TRI_SPLIT_EVAL ? window : set->num_rows[TRI_SPLIT_EVAL] + window;
    *num = set->row_begin[row + 1] - set->row_begin[row];
    return set->order + set->row_begin[row];
}

char *tri_example_set_describe(const tri_example_set *set, char *text, size_t text_size)
{
    char cut[48] = "", dropped[48] = "", eval[64] = "", number[32], rows[32];
    if (set->num_cut > 0)
        snprintf(cut, sizeof cut, ", %s cut", tri_text_grouped(set->num_cut, number));
    if (set->num_dropped > 0)
        snprintf(dropped, sizeof dropped, ", %s dropped",
                 tri_text_grouped(set->num_dropped, number));
    if (set->num_rows[TRI_SPLIT_EVAL] > 0)
        snprintf(eval, sizeof eval, ", %s more for evaluation",
                 tri_text_grouped((int64_t)set->num_rows[TRI_SPLIT_EVAL], number));
    snprintf(text, text_size, "%s%s, %s rows of %lld%s", cut, dropped,
             tri_text_grouped((int64_t)set->num_rows[TRI_SPLIT_TRAIN], rows),
             (long long)set->seq_len, eval);
    return text;
}
