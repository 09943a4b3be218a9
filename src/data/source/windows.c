#include "data/source/windows.h"
#include "base/rng.h"
#include "base/text.h"
#include "data/source/source.h"

#include <stdio.h>

uint64_t tri_windows_number(const tri_windows *w, tri_split split, uint64_t sample)
{
    if (split == TRI_SPLIT_EVAL)
        return sample % w->num_eval;
    return tri_data_shuffle(w->seed, sample / w->num_train, w->num_train, sample % w->num_train);
}

uint64_t tri_windows_begin(const tri_windows *w, tri_split split, uint64_t sample)
{
    uint64_t begin = tri_windows_number(w, split, sample) * w->seq_len;
    if (split == TRI_SPLIT_EVAL)
        return w->train + begin;
    uint32_t word[4];
    tri_philox(w->seed, sample / w->num_train, 0, tri_stream("data", "phase"), word);
    return ((uint64_t)word[0] << 32 | word[1]) % w->num_phases + begin;
}

/* How many units at the end are for evaluation. */
static tr_status hold_out(const tri_windows *w, const tri_data_config *config, const char *called,
                          uint64_t *eval, tr_error *err)
{
    const uint64_t need = w->seq_len + 1; /* the last token of a window has a target too */
    bool has_eval = config->eval_fraction > 0;
    *eval = 0;
    if (w->total < (has_eval ? 2 : 1) * need)
        return tri_fail(err, TR_ERROR_INPUT,
                        "%s: the text has %llu %s, but windows of data.seq_len = %llu need at "
                        "least %llu%s; lower data.seq_len%s or give more text",
                        config->source, (unsigned long long)w->total, called,
                        (unsigned long long)w->seq_len,
                        (unsigned long long)((has_eval ? 2 : 1) * need),
                        has_eval ? " (one to train on and one to evaluate)" : "",
                        has_eval ? ", set data.eval_fraction to 0" : "");
    if (has_eval) {
        *eval = (uint64_t)(config->eval_fraction * (double)w->total);
        if (*eval < need)
            *eval = need;
    }
    if (w->total < *eval + need)
        return tri_fail(err, TR_ERROR_INPUT,
                        "%s: of %llu %s of text, data.eval_fraction = %g leaves %llu to train "
                        "on, but a window of data.seq_len = %llu needs %llu; lower one of the two",
                        config->source, (unsigned long long)w->total, called, config->eval_fraction,
                        (unsigned long long)(w->total - *eval), (unsigned long long)w->seq_len,
                        (unsigned long long)need);
    return TR_OK;
}

static tr_status check_held_out(const tri_windows *w, const tri_data_config *config,
                                const char *called, uint64_t held_out, tr_error *err)
{
    const uint64_t need = w->seq_len + 1, train = w->total - held_out;
    if (train >= need && held_out >= need)
        return TR_OK;
    return tri_fail(err, TR_ERROR_INPUT,
                    "%s: has %llu %s to train on and %llu to evaluate, but a window of "
                    "data.seq_len = %llu needs %llu; lower data.seq_len or give more text",
                    config->source, (unsigned long long)train, called, (unsigned long long)held_out,
                    (unsigned long long)w->seq_len, (unsigned long long)need);
}

tr_status tri_windows_cut(tri_windows *w, const tri_data_config *config, uint64_t units,
                          uint64_t held_out, const char *called, tr_error *err)
{
    *w = (tri_windows){.seq_len = (uint64_t)config->seq_len, .seed = config->seed, .total = units};
    if (held_out > 0)
        TRI_TRY(check_held_out(w, config, called, held_out, err));
    else
        TRI_TRY(hold_out(w, config, called, &held_out, err));
    w->train = units - held_out;
    w->num_eval = held_out > 0 ? (held_out - 1) / w->seq_len : 0;
    w->num_train = w->train < 2 * w->seq_len ? 1 : w->train / w->seq_len - 1;
    w->num_phases = w->train - w->num_train * w->seq_len;
    return TR_OK;
}

char *tri_windows_describe(const tri_windows *w, char *text, size_t text_size)
{
    char train[32], eval[32], more[64] = "";
    if (w->num_eval > 0)
        snprintf(more, sizeof more, ", %s more for evaluation",
                 tri_text_grouped((int64_t)w->num_eval, eval));
    snprintf(text, text_size, "%s window%s of %llu%s",
             tri_text_grouped((int64_t)w->num_train, train), w->num_train == 1 ? "" : "s",
             (unsigned long long)w->seq_len, more);
    return text;
}
