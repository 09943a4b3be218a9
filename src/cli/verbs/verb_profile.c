/* trireme profile: where the time of a traced run went. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fs.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/doc/json_doc.h"
#include "cli/runs/run_find.h"
#include "cli/verbs/profile_draw.h"
#include "train/run/run_trace.h"

/* A rank's and a step's share of what was added up over all of both. */
static double each(const tri_profile *p, double sum)
{
    return sum / (double)p->num_steps / p->num_present;
}

static double share(double part, double whole)
{
    return whole > 0 ? part / whole : 0;
}

/* NAN where nothing is known. */
static double rate(double amount, double seconds)
{
    return amount > 0 && seconds > 0 ? amount / seconds : (double)NAN;
}

static double bandwidth(const tri_profile_axis *axis)
{
    return rate(axis->bytes, axis->seconds - axis->late_s);
}

/* ---- the table ---- */

static void print_part(double seconds, double step_s)
{
    printf(" %9.3f %5.1f%%", seconds * 1e3, 100 * share(seconds, step_s));
}

static tri_profile_rank mean_of(const tri_profile *p)
{
    tri_profile_rank mean = {.present = true, .waits_for = -1};
    for (int r = 0; r < p->head.num_ranks; r++) {
        mean.step_s += p->ranks[r].step_s / p->num_present;
        mean.compute_s += p->ranks[r].compute_s / p->num_present;
        mean.message_s += p->ranks[r].message_s / p->num_present;
        mean.wait_s += p->ranks[r].wait_s / p->num_present;
        mean.idle_s += p->ranks[r].idle_s / p->num_present;
    }
    return mean;
}

static void print_rank(const tri_profile_rank *rank, const char *name)
{
    printf("%-5s %9.3f", name, rank->step_s * 1e3);
    print_part(rank->compute_s, rank->step_s);
    print_part(rank->message_s, rank->step_s);
    print_part(rank->wait_s, rank->step_s);
    print_part(rank->idle_s, rank->step_s);
    if (rank->waits_for >= 0)
        printf("  rank %d, %.3f ms", rank->waits_for, rank->waits_for_s * 1e3);
    printf("\n");
}

static void print_ranks(const tri_profile *p)
{
    tri_profile_rank mean = mean_of(p);
    char name[16];
    printf("%-5s %9s %16s %16s %16s %16s%s\n", "rank", "step ms", "compute", "message", "wait",
           "idle", p->num_present > 1 ? "  waits most for" : "");
    for (int r = 0; r < p->head.num_ranks; r++) {
        snprintf(name, sizeof name, "%d", r);
        if (p->ranks[r].present)
            print_rank(&p->ranks[r], name);
    }
    if (p->num_present > 1)
        print_rank(&mean, "mean");
}

static void print_rate(double value, const char *after)
{
    if (isfinite(value))
        printf(" %10.4g%s", value * 1e-9, after);
    else
        printf(" %10s%s", "-", after);
}

static void print_operators(const tri_profile *p, size_t most)
{
    const tri_trace_peaks *peaks = &p->head.peaks;
    bool limits = peaks->flops > 0 && peaks->bytes > 0;
    double compute = mean_of(p).compute_s, rest = 0;
    printf("\n%-22s %9s %10s %7s %10s %10s%s\n", "operator", "calls", "ms", "share", "GFLOP/s",
           "GB/s", limits ? "   limit ms  of limit" : "");
    for (size_t i = 0; i < p->num_ops; i++) {
        const tri_profile_op *op = &p->ops[i];
        double seconds = each(p, op->seconds);
        if (i >= most) {
            rest += seconds;
            continue;
        }
        printf("%-22s %9.4g %10.3f %6.1f%%", op->name, each(p, (double)op->calls), seconds * 1e3,
               100 * share(seconds, compute));
        print_rate(rate(op->flops, op->seconds), "");
        print_rate(rate(op->bytes, op->seconds), "");
        if (limits)
            printf(" %10.3f %8.0f%%", each(p, op->limit_s) * 1e3,
                   100 * share(op->limit_s, op->seconds));
        printf("\n");
    }
    if (rest > 0)
        printf("%-22s %9s %10.3f %6.1f%%\n", "others", "", rest * 1e3, 100 * share(rest, compute));
    if (limits)
        printf("limits: products at %.4g TFLOP/s, bytes at %.4g GB/s, measured at the end of the "
               "run; what fits the caches can be faster\n",
               peaks->flops * 1e-12, peaks->bytes * 1e-9);
    else
        printf("no peak known: the run did not end well, or its device has none to measure\n");
}

static void print_messages(const tri_profile *p)
{
    char bytes[16];
    if (p->num_axes == 0)
        return;
    printf("\n%-10s %-16s %9s %12s %10s %10s %10s %8s\n", "messages", "", "calls", "bytes", "ms",
           "late ms", "GB/s", "hidden");
    for (size_t i = 0; i < p->num_axes; i++) {
        const tri_profile_axis *a = &p->axes[i];
        printf("%-10s %-16s %9.4g %12s %10.3f %10.3f", a->name, a->operation,
               each(p, (double)a->calls), tri_text_bytes(each(p, a->bytes), bytes),
               each(p, a->seconds) * 1e3, each(p, a->late_s) * 1e3);
        print_rate(bandwidth(a), "");
        printf(" %7.1f%%\n", 100 * share(a->hidden_s, a->seconds));
    }
    printf("late: until the last rank has begun it; GB/s is of the time after that\n");
}

static void print_head(const tri_profile *p, const char *dir)
{
    const tri_trace_head *head = &p->head;
    tri_text_print(stdout, "%s: step%s %" PRId64, dir, p->num_steps == 1 ? "" : "s", p->first_step);
    if (p->num_steps > 1)
        printf(" to %" PRId64, p->first_step + p->num_steps - 1);
    printf(", %d rank%s; all times are means of a rank's step\n", head->num_ranks,
           head->num_ranks == 1 ? "" : "s");
    if (p->num_present < head->num_ranks)
        printf("%d of the ranks left no whole step\n", head->num_ranks - p->num_present);
    if (head->clock_error_us > 0)
        printf("clocks of machines agree to %.3g us\n", head->clock_error_us);
    printf("\n");
}

static void print_all(const tri_profile *p, const char *dir)
{
    enum { MOST_SHOWN = 16 };
    print_head(p, dir);
    print_ranks(p);
    print_operators(p, MOST_SHOWN);
    print_messages(p);
}

/* ---- JSON ---- */

static void put_ranks(json_t *doc, const tri_profile *p)
{
    json_t *list = tri_doc_list(doc, "ranks");
    for (int r = 0; r < p->head.num_ranks; r++) {
        const tri_profile_rank *rank = &p->ranks[r];
        if (!rank->present)
            continue;
        json_t *item = tri_doc_item(list);
        tri_doc_count(item, "rank", r);
        tri_doc_number(item, "step_seconds", rank->step_s);
        tri_doc_number(item, "compute_seconds", rank->compute_s);
        tri_doc_number(item, "message_seconds", rank->message_s);
        tri_doc_number(item, "wait_seconds", rank->wait_s);
        tri_doc_number(item, "idle_seconds", rank->idle_s);
        tri_doc_count_from(item, "waits_for_rank", rank->waits_for, 0);
        tri_doc_number(item, "waits_for_seconds", rank->waits_for_s);
    }
}

static void put_operators(json_t *doc, const tri_profile *p)
{
    json_t *list = tri_doc_list(doc, "operators");
    for (size_t i = 0; i < p->num_ops; i++) {
        const tri_profile_op *op = &p->ops[i];
        json_t *item = tri_doc_item(list);
        tri_doc_text(item, "operator", op->name);
        tri_doc_number(item, "calls", each(p, (double)op->calls));
        tri_doc_number(item, "seconds", each(p, op->seconds));
        tri_doc_number(item, "flops", each(p, op->flops));
        tri_doc_number(item, "bytes", each(p, op->bytes));
        tri_doc_number(item, "flops_per_second", rate(op->flops, op->seconds));
        tri_doc_number(item, "bytes_per_second", rate(op->bytes, op->seconds));
        tri_doc_number(item, "limit_seconds", op->limit_s > 0 ? each(p, op->limit_s) : (double)NAN);
    }
}

static void put_messages(json_t *doc, const tri_profile *p)
{
    json_t *list = tri_doc_list(doc, "messages");
    for (size_t i = 0; i < p->num_axes; i++) {
        const tri_profile_axis *a = &p->axes[i];
        json_t *item = tri_doc_item(list);
        tri_doc_text(item, "axis", a->name);
        tri_doc_text(item, "operation", a->operation);
        tri_doc_number(item, "calls", each(p, (double)a->calls));
        tri_doc_number(item, "bytes", each(p, a->bytes));
        tri_doc_number(item, "seconds", each(p, a->seconds));
        tri_doc_number(item, "late_seconds", each(p, a->late_s));
        tri_doc_number(item, "hidden_seconds", each(p, a->hidden_s));
        tri_doc_number(item, "exposed_seconds", each(p, a->exposed_s));
        tri_doc_number(item, "bytes_per_second", bandwidth(a));
    }
}

static tr_status print_json(const tri_profile *p, const char *dir, tr_error *err)
{
    json_t *doc = tri_doc_begin();
    const tri_trace_peaks *peaks = &p->head.peaks;
    tri_doc_text(doc, "run", dir);
    tri_doc_count(doc, "first_step", p->first_step);
    tri_doc_count(doc, "steps", p->num_steps);
    tri_doc_count(doc, "num_ranks", p->head.num_ranks);
    tri_doc_number(doc, "clock_error_seconds", p->head.clock_error_us * 1e-6);
    tri_doc_number(doc, "peak_flops_per_second", peaks->flops > 0 ? peaks->flops : (double)NAN);
    tri_doc_number(doc, "peak_bytes_per_second", peaks->bytes > 0 ? peaks->bytes : (double)NAN);
    put_ranks(doc, p);
    put_operators(doc, p);
    put_messages(doc, p);
    return tri_doc_print(doc, stdout, err);
}

/* ---- the verb ---- */

static tr_status show(const tri_cli *cli, const char *dir, const char *trace, tr_error *err)
{
    const char *picture = tri_cli_flag(cli, "draw");
    bool json = tri_cli_flag(cli, "json");
    static tri_profile p; /* large for a stack */
    if (picture)
        TRI_TRY(tri_check_output(picture, false, err));
    TRI_TRY(tri_profile_read(&p, trace, err));
    tr_status status = TR_OK;
    if (picture) {
        status = tri_profile_draw(&p, trace, dir, picture, err);
        if (status == TR_OK && !json)
            tri_text_print(stdout, "written to %s\n\n", picture);
    }
    if (status == TR_OK && json)
        status = print_json(&p, dir, err);
    else if (status == TR_OK)
        print_all(&p, dir);
    tri_profile_free(&p);
    return status;
}

static tr_status run(const tri_cli *cli, char **dir, char **trace, tr_error *err)
{
    if (cli->num_operands != 1)
        return tri_fail(err, TR_ERROR_INPUT,
                        "name one run that had run.trace=true: trireme profile runs/tiny; `trireme "
                        "runs` lists them");
    TRI_TRY(tri_run_dir_of(cli->operands[0], dir, err));
    tri_run_trace_gather_left(*dir);
    *trace = tri_path_join(*dir, "trace.json");
    if (!*trace)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for a path");
    if (!tri_path_exists(*trace))
        return tri_fail_missing(err, *trace,
                                "train with --set run.trace=true to have one (a few steps are "
                                "enough: --set train.steps=10)");
    return show(cli, *dir, *trace, err);
}

int tri_verb_profile(const tri_cli *cli)
{
    tr_error err = {0};
    char *dir = NULL, *trace = NULL;
    tr_status status = run(cli, &dir, &trace, &err);
    free(dir);
    free(trace);
    return status == TR_OK ? TRI_EXIT_OK : tri_cli_fail(&err);
}
