/* Advice as text: a paragraph for each question, then the layout that follows. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cli/advise/advise_parts.h"

enum { WIDTH = 98 };

static const char *milliseconds(double ms, char text[32])
{
    if (ms >= 9999.5)
        return tri_text_grouped((int64_t)llround(ms), text);
    snprintf(text, 32, "%.4g", ms < 1e-6 ? 0 : ms); /* what is left of sums of doubles is nothing */
    return text;
}

/* Words on lines of WIDTH columns, all but the first behind `column`, where the first is already.
 */
static void add_wrapped(tri_text *text, const char *words, int column)
{
    int at = column;
    while (*words) {
        int length = (int)strcspn(words, " ");
        if (at > column && at + 1 + length > WIDTH) {
            tri_text_add(text, "\n%*s", column, "");
            at = column;
        } else if (at > column) {
            tri_text_add(text, " ");
            at++;
        }
        tri_text_add(text, "%.*s", length, words);
        at += length;
        words += length;
        words += strspn(words, " ");
    }
    tri_text_add(text, "\n");
}

static void add_number(tri_text *text, const tri_advised_number *n)
{
    char number[32];
    tri_text_add(text, "   %-48s ", n->label);
    switch (n->unit) {
    case TRI_ADVISED_BYTES:
        tri_text_add(text, "%14s\n", tri_text_bytes(n->value, number));
        break;
    case TRI_ADVISED_RATE:
        tri_text_add(text, "%9.4g GB/s\n", 1e-9 * n->value);
        break;
    case TRI_ADVISED_MS:
        tri_text_add(text, "%11s ms\n", milliseconds(n->value, number));
        break;
    case TRI_ADVISED_SHARE:
        tri_text_add(text, "%12.1f %%\n", 100 * n->value);
        break;
    case TRI_ADVISED_COUNT:
        if (n->value < 100 && n->value != floor(n->value))
            tri_text_add(text, "%14.1f\n", n->value);
        else if (n->value < 1e9)
            tri_text_add(text, "%14s\n", tri_text_grouped((int64_t)llround(n->value), number));
        else
            tri_text_add(text, "%14s\n", tri_text_count(n->value, number));
        break;
    }
}

static bool is_chosen(const tri_advice *advice, const tri_advised_trial *trial)
{
    if (advice->chosen < 0)
        return false;
    tri_advised_layout layout = trial->layout;
    layout.group_lanes = advice->trials[advice->chosen].layout.group_lanes;
    return tri_advised_same(&layout, &advice->trials[advice->chosen].layout);
}

static void add_trial(tri_text *text, const tri_advice *advice, int trial)
{
    char words[120], number[32];
    const tri_advised_trial *t = &advice->trials[trial];
    tri_text_add(text, " %c %-48s ", is_chosen(advice, t) ? '>' : ' ',
                 tri_advised_words(&t->layout, words));
    if (*t->refused) {
        tri_text_add(text, "refused\n");
        return;
    }
    tri_text_add(text, "%14s", tri_text_bytes((double)t->plan_bytes, number));
    if (t->timed) {
        double exposed = 0;
        for (uint32_t a = 0; a < t->num_axes; a++)
            exposed += t->axes[a].exposed_s;
        tri_text_add(text, "  %8s ms", milliseconds(1e3 * t->seconds, number));
        tri_text_add(text, "  %8s ms  %5.1f %%", milliseconds(1e3 * exposed, number), 100 * t->mfu);
    } else if (!t->fits) {
        tri_text_add(text, "  does not fit");
    }
    int64_t idle = advice->devices - tri_advised_ranks(&t->layout);
    if (t->timed && idle > 0)
        tri_text_add(text, "  %" PRId64 " idle", idle);
    tri_text_add(text, "\n");
}

static void add_question(tri_text *text, const tri_advice *advice, int number)
{
    const tri_advised_question *q = &advice->questions[number];
    tri_text_add(text, "\n%d. %s\n   ", number + 1, q->asks);
    add_wrapped(text, q->answer, 3);
    for (int i = 0; i < q->num_numbers; i++)
        add_number(text, &q->numbers[i]);
    if (q->num_shown > 0)
        tri_text_add(text, "   %-48s %14s  %11s  %11s  %7s\n", "layout", "plan", "step", "exposed",
                     "MFU");
    for (int i = 0; i < q->num_shown; i++)
        add_trial(text, advice, q->shown[i]);
    tri_text_add(text, "   rule: ");
    add_wrapped(text, q->rule, 9);
    for (int i = 0; i < q->num_settings; i++)
        tri_text_add(text, "%s%s%s", i ? " " : "   -> ", q->settings[i],
                     i + 1 == q->num_settings ? "\n" : "");
}

/* The default is the wrong one for most. */
static void add_precision(tri_text *text, const tri_advice *advice)
{
    const tri_sim_machine *m = advice->machine;
    const double *rates = tri_sim_machine_device(m)->dense;
    tri_text_add(text, "products of %s, %.4g TFLOP/s", tri_rate_name(m->rate),
                 1e-12 * rates[m->rate]);
    if (m->rate != TRI_RATE_16 && rates[TRI_RATE_16] > rates[m->rate])
        tri_text_add(text, "; precision.kind=bf16 has %.1f times the rate",
                     rates[TRI_RATE_16] / rates[m->rate]);
    tri_text_add(text,
                 "\nmb: micro-batches of a step; every:2, full: layers that the backward makes "
                 "again; >: what follows\n");
}

static void add_head(tri_text *text, const tri_advice *advice)
{
    char params[16], active[16], machine[200], room[16], memory[16];
    const tri_advised_model *m = &advice->model;
    tri_sim_machine_title(advice->machine, machine, sizeof machine);
    tri_text_add(text, "%s: %s parameters", m->name, tri_text_count(m->params, params));
    if (m->moe)
        tri_text_add(text, ", %s of them for a token", tri_text_count(m->active, active));
    tri_text_add(text, "; a step has %" PRId64 " rows of %" PRId64 " tokens\n", m->batch,
                 m->seq_len);
    tri_text_add(text, "%" PRId64 " x %s\n", advice->devices, machine);
    tri_text_add(text, "a plan may take %s of the %s of a device; %s\n",
                 tri_text_bytes((double)advice->room_bytes, room),
                 tri_text_bytes((double)advice->memory_bytes, memory),
                 advice->limited ? "so says run.memory_limit" : "a tenth is left to libraries");
    add_precision(text, advice);
    if (advice->machine->model.cluster.num_tiers == 1 && !advice->machine->model.cluster.device &&
        advice->devices > 8)
        tri_text_add(text, "all devices are taken to reach each other over these links; --cluster "
                           "dgx-h100:4, say, has nodes\n");
}

static void add_misfit(tri_text *text, const tri_advice *advice)
{
    char plan[16], room[16], words[120];
    const tri_advised_trial *least = &advice->trials[advice->smallest];
    tri_text_add(text, "\nnothing that was tried fits: the smallest plan is %s of %s (%s)\n",
                 tri_text_bytes((double)least->plan_bytes, plan),
                 tri_text_bytes((double)advice->room_bytes, room),
                 tri_advised_words(&least->layout, words));
    if (advice->devices_needed > 0)
        tri_text_add(text, "%" PRId64 " such devices would be enough\n", advice->devices_needed);
}

tr_status tri_advice_text(const tri_advice *advice, const char *command, tri_text *text,
                          tr_error *err)
{
    char words[120], number[32];
    add_head(text, advice);
    for (int i = 0; i < advice->num_questions; i++)
        add_question(text, advice, i);
    if (advice->chosen >= 0) {
        const tri_advised_trial *t = &advice->trials[advice->chosen];
        double tokens = (double)advice->model.batch * (double)advice->model.seq_len;
        tri_text_add(text, "\nthe layout that follows: %s\n", tri_advised_words(&t->layout, words));
        tri_text_add(text, "   %s\n", command);
        tri_text_add(text, "compiled: a plan of %s fits; ",
                     tri_text_bytes((double)t->plan_bytes, number));
        tri_text_add(text, "a step is simulated to take %s ms, ",
                     milliseconds(1e3 * t->seconds, number));
        tri_text_add(text, "%s tokens/s, MFU %.1f %%\n",
                     tri_text_count(tokens / t->seconds, number), 100 * t->mfu);
    } else {
        add_misfit(text, advice);
    }
    tri_text_add(text,
                 "%d layouts were compiled, %d timed; trireme plan --search tries all of them\n",
                 advice->num_trials, advice->num_timed);
    return text->failed ? tri_fail(err, TR_ERROR_RUNTIME, "no memory for the text") : TR_OK;
}
