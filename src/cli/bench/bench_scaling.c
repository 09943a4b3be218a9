/* trireme bench scaling: the same step on one core, two, and so on: strong scaling. Ranks are
 * threads with a core each; the batch stays as it is. */
#include "cli/bench/bench_scaling.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/api.h"
#include "base/samples.h"
#include "cli/doc/json_doc.h"
#include "cli/word_list.h"
#include "config/settings_internal.h"
#include "sim/run_sums.h"
#include "train/ranks.h"

enum { MOST_RANKS = 256, WARM_UP = 2 };

typedef struct scaling_row {
    int num_ranks;
    double seconds;    /* of a step: the median */
    double wait_share; /* of its time rank 0 waited for others */
    double tokens;     /* of a step */
    char description[160];
} scaling_row;

typedef struct scaling_bench {
    const tri_cli *cli;
    const char *axis;
    int64_t num_steps;
    tr_settings *settings; /* of the row that is measured, complete */
    double *times;         /* of each step, on rank 0 */
    scaling_row rows[TRI_MOST_WORDS];
    int num_rows;
} scaling_bench;

static tr_status time_steps(scaling_bench *b, tr_comm *comm, tr_session *session, tr_error *err)
{
    scaling_row *row = &b->rows[b->num_rows];
    tri_comm_time before = {0};
    for (int64_t i = -WARM_UP; i < b->num_steps; i++) {
        tr_step step;
        if (i == 0)
            before = tri_comm_spent(comm);
        TRI_TRY(tr_session_step(session, &step, err));
        if (i < 0 || tr_comm_rank(comm) != 0)
            continue;
        b->times[i] = step.seconds;
        row->tokens = (double)step.tokens;
    }
    if (tr_comm_rank(comm) != 0)
        return TR_OK;
    double all = 0;
    for (int64_t i = 0; i < b->num_steps; i++)
        all += b->times[i];
    row->wait_share = 1e-9 * (double)(tri_comm_spent(comm).waited_ns - before.waited_ns) / all;
    tri_samples_sort(b->times, (size_t)b->num_steps);
    row->seconds = b->times[b->num_steps / 2];
    snprintf(row->description, sizeof row->description, "%s", session->session.device.description);
    return TR_OK;
}

static tr_status run_rank(tr_comm *comm, void *context, tr_error *err)
{
    scaling_bench *b = context;
    tr_session *session = NULL;
    tri_ranks ranks = {0};
    tr_status status = tri_api_compile_rank(b->settings, tr_comm_rank(comm), &session, err);
    bool several = tr_comm_size(comm) > 1;
    if (status == TR_OK && several)
        status = tri_ranks_use(&ranks, comm, &session->session, err);
    if (status == TR_OK)
        status = tri_api_start(session, err);
    if (status == TR_OK)
        status = time_steps(b, comm, session, err);
    if (session)
        tr_session_destroy(session);
    if (several)
        tri_ranks_leave(&ranks);
    return status;
}

static tr_status measure(scaling_bench *b, int num_ranks, tr_error *err)
{
    char layout[48];
    tr_error why = {0};
    snprintf(layout, sizeof layout, "layout.%s=%d", b->axis, num_ranks);
    TRI_TRY(tri_settings_clone(b->cli->settings, &b->settings, err));
    b->rows[b->num_rows] = (scaling_row){.num_ranks = num_ranks};
    tr_status status = tr_settings_set(b->settings, layout, &why);
    if (status == TR_OK)
        status = tr_settings_set(b->settings, "run.threads=1", &why);
    if (status == TR_OK)
        status = tri_api_check(b->settings, &why);
    if (status == TR_OK)
        status = tr_comm_run_threads(num_ranks, NULL, run_rank, b, &why);
    tr_settings_destroy(b->settings);
    b->settings = NULL;
    b->num_rows += status == TR_OK;
    if (status != TR_OK) {
        *err = why;
        return tri_fail_prefix(err, status, "%s", layout);
    }
    return TR_OK;
}

static tr_status read_axis(scaling_bench *b, tr_error *err)
{
    static const char *const axes[] = {"dp", "tp", "pp", "cp", NULL};
    const char *given = tri_cli_flag(b->cli, "axis");
    b->axis = given ? given : axes[0];
    for (int i = 0; axes[i]; i++)
        if (strcmp(b->axis, axes[i]) == 0)
            return TR_OK;
    return tri_fail(err, TR_ERROR_INPUT,
                    "--axis is \"%.20s\"; what divides the step is dp, tp, pp or cp", b->axis);
}

/* Numbers of ranks: one, which the others are compared with, and those of --ranks, or powers of two
 * up to the cores, and these. */
static tr_status read_ranks(const scaling_bench *b, int ranks[TRI_MOST_WORDS], int *num,
                            tr_error *err)
{
    int cores = tri_device_num_cores();
    tri_word_list list;
    ranks[0] = 1;
    *num = 1;
    if (!tri_cli_flag(b->cli, "ranks")) {
        for (int n = 2; n < cores && n < MOST_RANKS; n *= 2)
            ranks[(*num)++] = n;
        if (cores > 1)
            ranks[(*num)++] = cores < MOST_RANKS ? cores : MOST_RANKS;
        return TR_OK;
    }
    tr_status status = tri_word_list_read(b->cli, "ranks", "", &list, err);
    for (int i = 0; status == TR_OK && i < list.num; i++) {
        char *end;
        long n = strtol(list.words[i], &end, 10);
        if (end == list.words[i] || *end || n < 1 || n > MOST_RANKS)
            status = tri_fail(err, TR_ERROR_INPUT,
                              "--ranks: \"%.20s\" is not a number from 1 to %d; write 1,2,4",
                              list.words[i], MOST_RANKS);
        if (status == TR_OK && n > 1 && *num < TRI_MOST_WORDS)
            ranks[(*num)++] = (int)n;
    }
    free(list.text);
    return status;
}

static void print_table(const scaling_bench *b)
{
    const scaling_row *first = &b->rows[0];
    printf("a step of %.0f tokens, divided over layout.%s, on ranks of one thread each: %s\n",
           first->tokens, b->axis, first->description);
    printf("\n  %6s %12s %12s %9s %11s %12s %8s\n", "ranks", "ms", "tokens/s", "speed-up",
           "efficiency", "serial part", "waits");
    for (int i = 0; i < b->num_rows; i++) {
        const scaling_row *row = &b->rows[i];
        double gain = first->seconds / row->seconds;
        double serial = tri_serial_part(gain, row->num_ranks);
        printf("  %6d %12.3f %12.1f %8.2fx %10.1f%%", row->num_ranks, row->seconds * 1e3,
               row->tokens / row->seconds, gain, 100 * gain / row->num_ranks);
        if (row->num_ranks > 1)
            printf(" %11.1f%%", 100 * serial);
        else
            printf(" %12s", "");
        printf(" %7.1f%%\n", 100 * row->wait_share);
    }
    printf("\nserial part: what would have to stay undivided for this speed-up by Amdahl's law "
           "(Karp and Flatt).\nwaits: of rank 0's time, for other ranks. Ranks beyond the cores "
           "share them (here are %d).\n",
           tri_device_num_cores());
}

static tr_status print_json(const scaling_bench *b, tr_error *err)
{
    for (int i = 0; i < b->num_rows; i++) {
        const scaling_row *row = &b->rows[i];
        double gain = b->rows[0].seconds / row->seconds;
        json_t *doc = tri_doc_begin();
        tri_doc_text(doc, "axis", b->axis);
        tri_doc_count(doc, "ranks", row->num_ranks);
        tri_doc_number(doc, "step_seconds", row->seconds);
        tri_doc_number(doc, "tokens_per_second", row->tokens / row->seconds);
        tri_doc_number(doc, "speed_up", gain);
        tri_doc_number(doc, "efficiency_share", gain / row->num_ranks);
        if (row->num_ranks > 1)
            tri_doc_number(doc, "serial_share", tri_serial_part(gain, row->num_ranks));
        else
            tri_doc_null(doc, "serial_share");
        tri_doc_number(doc, "wait_share", row->wait_share);
        TRI_TRY(tri_doc_print(doc, stdout, err));
    }
    return TR_OK;
}

/* Ranks are threads of this process, which GPUs are not for. */
static tr_status choose_cpu(const tri_cli *cli, tr_error *err)
{
    for (int i = 0; i < cli->num_assignments; i++)
        if (strncmp(cli->assignments[i], "run.device=", 11) == 0 &&
            strcmp(cli->assignments[i] + 11, "cpu") != 0)
            return tri_fail(err, TR_ERROR_INPUT,
                            "bench scaling divides a step over cores; leave %s out",
                            cli->assignments[i]);
    return tr_settings_set(cli->settings, "run.device=cpu", err);
}

static tr_status run(scaling_bench *b, tr_error *err)
{
    int ranks[TRI_MOST_WORDS], num;
    TRI_TRY(read_axis(b, err));
    TRI_TRY(read_ranks(b, ranks, &num, err));
    TRI_TRY(tri_cli_flag_int(b->cli, "steps", 1, 100000, &b->num_steps, err));
    TRI_TRY(choose_cpu(b->cli, err));
    b->times = calloc((size_t)b->num_steps, sizeof *b->times);
    if (!b->times)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for the times");
    for (int i = 0; i < num; i++)
        TRI_TRY(measure(b, ranks[i], err));
    if (tri_cli_flag(b->cli, "json"))
        return print_json(b, err);
    print_table(b);
    return TR_OK;
}

int tri_bench_scaling(const tri_cli *cli)
{
    tr_error err = {0};
    scaling_bench *b = calloc(1, sizeof *b);
    if (!b) {
        tri_fail(&err, TR_ERROR_RUNTIME, "no memory for the benchmark");
        return tri_cli_fail(&err);
    }
    *b = (scaling_bench){.cli = cli, .num_steps = 5};
    tr_status status = run(b, &err);
    free(b->times);
    free(b);
    return status == TR_OK ? TRI_EXIT_OK : tri_cli_fail(&err);
}
