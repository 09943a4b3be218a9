/* trireme plan --search, for people. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cli/search/plan_search.h"

static void print_seconds(double seconds, char text[24])
{
    if (seconds < 1)
        snprintf(text, 24, "%.1f ms", 1e3 * seconds);
    else
        snprintf(text, 24, "%.2f s", seconds);
}

static double tokens_of(const tri_plan_search *p)
{
    return (double)p->found.facts.batch * (double)p->found.facts.seq_len;
}

static void add_exposed(const tri_layout_result *r, tri_text *text)
{
    const double least = 0.005;
    bool any = false;
    for (uint32_t a = 0; a < r->num_axes; a++) {
        double share = r->exposed[a] / r->seconds;
        if (share < least)
            continue;
        tri_text_add(text, "%s%s %.0f %%", any ? ", " : "", r->axis[a], 100 * share);
        any = true;
    }
    if (r->redone / r->seconds >= least) {
        tri_text_add(text, "%srecomputed %.0f %%", any ? ", " : "", 100 * r->redone / r->seconds);
        any = true;
    }
    if (r->idle / r->seconds >= least)
        tri_text_add(text, "%sidle %.0f %%", any ? ", " : "", 100 * r->idle / r->seconds);
    else if (!any)
        tri_text_add(text, "-");
}

bool tri_plan_search_tied(const tri_plan_search *p, const tri_layout_result *result)
{
    const tri_search *s = &p->found;
    return s->num_best > 0 && p->objective != TRI_OBJECTIVE_MEMORY &&
           result->seconds <= s->results[s->best[0]].seconds * (1 + p->of.machine.error);
}

static void add_assignment(const char *assignment, tri_text *text)
{
    bool plain = strcspn(assignment, " '\"$;&|<>*?()") == strlen(assignment);
    tri_text_add(text, plain ? " --set %s" : " --set '%s'", assignment);
}

void tri_plan_search_command(const tri_plan_search *p, const tri_layout_choice *choice,
                             tri_text *text)
{
    const tri_cli *cli = p->cli;
    uint64_t budget = tri_fit_budget(&p->of.machine);
    tri_text_add(text, "trireme train%s%s", cli->file ? " " : "", cli->file ? cli->file : "");
    for (int i = 0; i < cli->num_plugins; i++)
        tri_text_add(text, " --plugin %s", cli->plugins[i]);
    for (int i = 0; i < cli->num_assignments; i++) /* another value of the choice comes below */
        if (strncmp(cli->assignments[i], "layout=", 7) != 0 &&
            tri_choice_compare(choice, budget, cli->assignments[i]) != TRI_CHOICE_OTHER)
            add_assignment(cli->assignments[i], text);
    for (int i = 0; i < p->num_assumed; i++)
        add_assignment(p->assumed[i], text);
    for (int i = 0; i < cli->num_flags; i++)
        if (strcmp(cli->flags[i].flag->name, "fix") == 0 &&
            tri_choice_compare(choice, budget, cli->flags[i].value) == TRI_CHOICE_ELSE)
            add_assignment(cli->flags[i].value, text);
    tri_choice_command(choice, budget, cli->settings, text);
}

static void print_title(const tri_plan_search *p)
{
    char title[256], count[32];
    const char *preset = tr_settings_string(p->settings, "model.preset");
    if (p->is_measured)
        snprintf(title, sizeof title, "%.100s (measured)", p->profile.device);
    else
        tri_sim_machine_title(&p->machine, title, sizeof title);
    printf("%s on %u x %s; a step of %s tokens\n",
           *preset ? preset : tr_settings_string(p->settings, "model.kind"), p->of.machine.devices,
           title, tri_text_grouped((int64_t)tokens_of(p), count));
}

/* What was taken because nobody said it. */
static void print_assumed(const tri_plan_search *p)
{
    if (p->num_assumed == 0)
        return;
    printf("assumed:");
    for (int i = 0; i < p->num_assumed; i++)
        printf(" %s", p->assumed[i]);
    printf("; say what you train with by --set\n");
}

static void print_counts(const tri_search *s)
{
    char text[24], count[4][32];
    printf("%s layouts: %s cannot be, %s do not fit, %s were looked at exactly",
           tri_text_grouped((int64_t)s->space.count, count[0]),
           tri_text_grouped((int64_t)s->num_refused, count[1]),
           tri_text_grouped((int64_t)s->num_too_large, count[2]),
           tri_text_grouped((int64_t)s->num_results, count[3]));
    if (s->rest_bound > 0) {
        print_seconds(s->rest_bound, text);
        printf("; the others take %s or more", text);
    }
    printf("\n\n");
}

static tr_status print_row(const tri_plan_search *p, size_t row, tr_error *err)
{
    const tri_layout_result *r = &p->found.results[p->found.best[row]];
    char seconds[24], rate[16];
    tri_text text;
    tri_text_init(&text);
    print_seconds(r->seconds, seconds);
    tri_text_add(&text, "%2zu%s %10s %9s %6.1f %% %7.1f  ", row + 1,
                 row > 0 && tri_plan_search_tied(p, r) ? "=" : " ", seconds,
                 tri_text_count(tokens_of(p) / r->seconds, rate), 100 * r->mfu,
                 (double)r->bytes / 0x1p30);
    tri_choice_text(&r->choice, &text);
    tri_text_add(&text, "\n%45s", "");
    add_exposed(r, &text);
    tri_text_add(&text, "\n");
    tr_status status = tri_text_put(&text, stdout, err);
    tri_text_fini(&text);
    return status;
}

static tr_status print_table(const tri_plan_search *p, tr_error *err)
{
    printf("         step  tokens/s      MFU     GiB  layout; what of the step is exposed\n");
    for (size_t i = 0; i < p->found.num_best; i++)
        TRI_TRY(print_row(p, i, err));
    printf("\nof each mesh the best; %.1f GiB of a device's %.1f are for the plan\n",
           (double)p->of.machine.memory_bytes / 0x1p30, p->device_bytes / 0x1p30);
    if (p->objective == TRI_OBJECTIVE_MEMORY)
        printf("least memory of a rank, of those that take up to a quarter longer than the "
               "fastest\n");
    else
        printf("times are usually off by %.0f %%: those marked = may be as fast as the first\n",
               100 * p->of.machine.error);
    return TR_OK;
}

static void print_family(const tri_plan_search *p, const tri_search_family *f)
{
    const tri_search *s = &p->found;
    double best = s->results[s->best[0]].seconds;
    double more = f->best.seconds / best - 1;
    if (!f->any_fits)
        printf("  %-24s %s\n", f->trait, f->why);
    else if (more < 0.0005)
        printf("  %-24s as fast\n", f->trait);
    else
        printf("  %-24s +%.*f %%: %s\n", f->trait, more < 0.0995 ? 1 : 0, 100 * more, f->why);
}

/* Less memory for more time: a few of the front. */
static void print_front(const tri_search *s)
{
    size_t front[256], num = tri_search_front(s, front, 256);
    const size_t shown = 5;
    char seconds[24];
    if (num < 2)
        return;
    printf("\nless memory takes more time:");
    for (size_t i = 0; i < num; i++) {
        size_t row = num <= shown ? i : i * (num - 1) / (shown - 1);
        if (i >= shown)
            break;
        print_seconds(s->results[front[row]].seconds, seconds);
        printf("%s %s in %.1f GiB", i > 0 ? "," : "", seconds,
               (double)s->results[front[row]].bytes / 0x1p30);
    }
    printf(" (--objective memory)\n");
}

/* Nothing fits: how far it is. */
tr_status tri_plan_search_nothing(const tri_plan_search *p, tr_error *err)
{
    const tri_search *s = &p->found;
    uint32_t devices = p->of.machine.devices;
    const char *plural = devices == 1 ? "" : "s";
    bool known = false;
    double least = INFINITY;
    char text[2][16];
    for (size_t i = 0; i < s->num_results; i++)
        if (s->results[i].known && (double)s->results[i].bytes < least) {
            least = (double)s->results[i].bytes;
            known = true;
        }
    if (s->space.count == 0)
        return tri_fail(err, TR_ERROR_INPUT,
                        "no layout has %u rank%s and what --fix and the batch ask for; free "
                        "something, or raise train.batch",
                        devices, plural);
    if (s->num_refused == s->space.count && s->cells.count > 0)
        return tri_fail(err, TR_ERROR_INPUT, "no layout of %u device%s can be made: %s", devices,
                        plural, s->cells.items[0].why);
    return tri_fail(err, TR_ERROR_INPUT,
                    "no layout of %u device%s fits: the smallest that was looked at takes %s%s of "
                    "%s; take more devices (--devices), shorter rows (data.seq_len) or a smaller "
                    "model",
                    devices, plural, known ? "" : "at least ",
                    tri_text_bytes(known ? least : s->least_bytes, text[0]),
                    tri_text_bytes((double)p->of.machine.memory_bytes, text[1]));
}

tr_status tri_plan_search_text(const tri_plan_search *p, tr_error *err)
{
    const tri_search *s = &p->found;
    tri_text command;
    if (s->num_best == 0)
        return tri_plan_search_nothing(p, err);
    print_title(p);
    print_assumed(p);
    print_counts(s);
    TRI_TRY(print_table(p, err));
    print_front(s);
    bool by_time = p->objective != TRI_OBJECTIVE_MEMORY;
    if (s->num_families > 0 && by_time)
        printf("\nwhy not otherwise? of each kind the best that was found, beside the first\n");
    for (size_t i = 0; i < s->num_families && by_time; i++)
        print_family(p, &s->families[i]);
    tri_text_init(&command);
    tri_plan_search_command(p, &s->results[s->best[0]].choice, &command);
    printf("\nthe first, to train with:\n\n  ");
    tr_status status = tri_text_put(&command, stdout, err);
    printf("\n");
    tri_text_fini(&command);
    return status;
}
