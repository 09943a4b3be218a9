#include "train/log/row_numbers.h"
#include "train/log/text/number_text.h"

#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "train/step_stats.h"

/* When a row has it. */
typedef enum presence {
    ALWAYS,
    EVALUATED,
    ACCURATE,
    EPOCH_ENDED,
    SCALED,
    MAY_SKIP,
    STALLED,
    SLOW_NAMED
} presence;

typedef struct number_def {
    const char *name, *group, *tag, *help;
    size_t offset; /* in tri_metrics_row */
    bool whole, counts;
    presence when;
} number_def;

#define WHOLE(member) .name = #member, .offset = offsetof(tri_metrics_row, member), .whole = true
#define REAL(member)  .name = #member, .offset = offsetof(tri_metrics_row, member)

/* In the order of metrics.jsonl. A new number is a member of tri_metrics_row and a row here. */
static const number_def defs[] = {
    {WHOLE(step), .group = "train", .tag = "step", .help = "Steps that are done"},
    {REAL(loss), .group = "train", .tag = "loss", .help = "Mean loss of the batch of a step"},
    {REAL(grad_norm), .group = "train", .tag = "grad_norm",
     .help = "Norm of the gradient before clipping"},
    {REAL(lr), .group = "train", .tag = "lr", .help = "Learning rate"},
    {WHOLE(tokens), .group = "train", .tag = "tokens", .help = "Tokens trained on", .counts = true},
    {REAL(step_ms), .group = "perf", .tag = "step_ms", .help = "Milliseconds of a step"},
    {REAL(tokens_per_s), .group = "perf", .tag = "tokens_per_s", .help = "Tokens a second"},
    {WHOLE(mem_peak_bytes), .group = "perf", .tag = "mem_peak_bytes",
     .help = "Most memory that rank 0 has had, in bytes"},
    {WHOLE(slowest_rank), .group = "perf", .tag = "slowest_rank",
     .help = "Rank that the others waited for: the longest own time in a step"},
    {REAL(slowest_ms), .group = "perf", .tag = "slowest_ms",
     .help = "Milliseconds of own time of that rank"},
    {REAL(own_ms), .group = "perf", .tag = "own_ms",
     .help = "Milliseconds of own time, without waiting: mean over the ranks"},
    {REAL(waited_ms), .group = "perf", .tag = "waited_ms",
     .help = "Milliseconds that a rank waited for others: mean over the ranks"},
    {WHOLE(slow_rank), .group = "perf", .tag = "slow_rank",
     .help = "Rank that is slower than its peers over the last steps", .when = SLOW_NAMED},
    {REAL(eval_loss), .group = "eval", .tag = "loss", .help = "Mean loss on held-out data",
     .when = EVALUATED},
    {REAL(eval_accuracy), .group = "eval", .tag = "accuracy",
     .help = "Share of held-out targets that the model held likeliest", .when = ACCURATE},
    {WHOLE(epoch), .group = "train", .tag = "epoch", .help = "Epochs that are done",
     .when = EPOCH_ENDED},
    {REAL(epoch_loss), .group = "train", .tag = "epoch_loss", .help = "Mean loss of an epoch",
     .when = EPOCH_ENDED},
    {REAL(loss_scale), .group = "train", .tag = "loss_scale",
     .help = "Scale of the gradients of a step", .when = SCALED},
    {WHOLE(skipped), .group = "train", .tag = "skipped", .help = "Steps that updated nothing",
     .counts = true, .when = MAY_SKIP},
    {REAL(ckpt_stall_ms), .group = "perf", .tag = "ckpt_stall_ms",
     .help = "Milliseconds that a checkpoint held up the training", .when = STALLED},
};
enum { NUM_DEFS = sizeof defs / sizeof *defs, BEFORE_STATS = 2 };
_Static_assert(NUM_DEFS + TRI_MAX_STEP_SHOWN == TRI_ROW_MAX_NUMBERS, "TRI_ROW_MAX_NUMBERS");

static bool is_present(const tri_metrics_row *row, presence when)
{
    switch (when) {
    case ALWAYS:
        return true;
    case EVALUATED:
        return row->has_eval;
    case ACCURATE:
        return row->has_eval && isfinite(row->eval_accuracy);
    case EPOCH_ENDED:
        return row->epoch > 0;
    case SCALED:
        return row->loss_scale > 0;
    case MAY_SKIP:
        return row->loss_scale > 0 || row->skipped > 0;
    case STALLED:
        return row->has_stall;
    case SLOW_NAMED:
        return row->slow_rank >= 0;
    }
    return false;
}

size_t tri_row_num_numbers(const tri_metrics_row *row)
{
    return NUM_DEFS + row->num_stats;
}

tri_row_number tri_row_number_at(const tri_metrics_row *row, size_t i)
{
    if (i >= BEFORE_STATS && i < BEFORE_STATS + row->num_stats) {
        const tri_shown *stat = &row->stats[i - BEFORE_STATS];
        return (tri_row_number){.name = stat->name,
                                .group = "train",
                                .tag = stat->name,
                                .help = "Statistic of a step",
                                .present = true,
                                .real = stat->value};
    }
    const number_def *def = &defs[i < BEFORE_STATS ? i : i - row->num_stats];
    tri_row_number number = {.name = def->name,
                             .group = def->group,
                             .tag = def->tag,
                             .help = def->help,
                             .counts = def->counts,
                             .whole = def->whole,
                             .present = is_present(row, def->when)};
    const char *member = (const char *)row + def->offset;
    if (def->whole)
        memcpy(&number.integer, member, sizeof number.integer);
    else
        memcpy(&number.real, member, sizeof number.real);
    if (def->whole)
        number.real = (double)number.integer;
    return number;
}

const char *tri_row_number_help(const char *name, bool *counts)
{
    for (int i = 0; i < NUM_DEFS; i++)
        if (strcmp(defs[i].name, name) == 0) {
            *counts = defs[i].counts;
            return defs[i].help;
        }
    *counts = false;
    return NULL;
}

/* A program that has this library inside may have set a locale that writes commas. */
static void with_points(char *text, int length)
{
    for (int i = 0; i < length && i < TRI_NUMBER_BYTES; i++)
        text[i] = text[i] == ',' ? '.' : text[i];
}

/* "5" to "5.0", "1e-05" to "1e-5": a reader sees that it is no whole number. */
static void as_real(char text[TRI_NUMBER_BYTES])
{
    char *exponent = strchr(text, 'e');
    if (!exponent) {
        if (!strchr(text, '.'))
            strcat(text, ".0");
        return;
    }
    char *to = exponent + 1, *from = to;
    if (*from == '-')
        to++;
    from += *from == '-' || *from == '+';
    while (*from == '0' && isdigit((unsigned char)from[1]))
        from++;
    memmove(to, from, strlen(from) + 1);
}

char *tri_number_text(const tri_row_number *number, const tri_odd_numbers *odd,
                      char out[TRI_NUMBER_BYTES])
{
    double real = number->real;
    if (number->whole)
        tri_whole_text(number->integer, out);
    else if (!isfinite(real))
        snprintf(out, TRI_NUMBER_BYTES, "%s",
                 isnan(real) ? odd->nan
                 : real > 0  ? odd->infinity
                             : odd->minus_infinity);
    else {
        if (!tri_short_text(real, out))
            with_points(out, snprintf(out, TRI_NUMBER_BYTES, "%.9g", real));
        as_real(out);
    }
    return out;
}

char *tri_time_text(double time_s, char out[TRI_NUMBER_BYTES])
{
    if (!tri_thousandths_text(time_s, out))
        with_points(out, snprintf(out, TRI_NUMBER_BYTES, "%.3f", time_s));
    return out;
}
