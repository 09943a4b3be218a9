/* trireme bench: steps on made-up data, with the time of each operator; or, as trireme bench comm,
 * the collectives of ranks (bench_comm.c). */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/api.h"
#include "cli/bench_comm.h"
#include "cli/cli.h"

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void print_operators(const tri_program *program, const double *seconds, double steps)
{
    double flops[TRI_NUM_OPS] = {0}, bytes[TRI_NUM_OPS] = {0}, total = 0;
    size_t calls[TRI_NUM_OPS] = {0};
    for (size_t c = 0; c < program->num_calls; c++) {
        const tri_segment *segment = &program->segments[program->calls[c].segment];
        for (uint32_t i = 0; i < segment->count; i++) {
            const tri_instr *instr = &program->instrs[segment->first + i];
            flops[instr->op] += instr->cost.flops;
            bytes[instr->op] += instr->cost.bytes;
            calls[instr->op]++;
        }
    }
    for (int op = 0; op < TRI_NUM_OPS; op++)
        total += seconds[op];
    printf("  %-22s %7s %10s %7s %10s %8s\n", "operator", "calls", "ms/step", "share", "GFLOP/s",
           "GB/s");
    for (int op = 0; op < TRI_NUM_OPS; op++) {
        double each = seconds[op] / steps;
        if (calls[op])
            printf("  %-22s %7zu %10.3f %6.1f%% %10.1f %8.1f\n", tri_op_get((tri_op)op)->name,
                   calls[op], each * 1e3, 100 * seconds[op] / total, flops[op] / each * 1e-9,
                   bytes[op] / each * 1e-9);
    }
    printf("  %-22s %7s %10.3f\n", "all operators", "", total / steps * 1e3);
}

static tr_status measure(tr_session *session, int64_t num_steps, double *times, double *by_op,
                         tr_error *err)
{
    tri_executor *executor = &session->session.executors[TRI_PROGRAM_TRAIN];
    for (int64_t i = -2; i < num_steps; i++) { /* two to warm up */
        tr_step step;
        executor->time_by_op = i < 0 ? NULL : by_op;
        TRI_TRY(tr_session_step(session, &step, err));
        if (i >= 0)
            times[i] = step.seconds;
    }
    executor->time_by_op = NULL;
    return TR_OK;
}

static void print_results(const tri_cli *cli, const tr_session *session, int64_t num_steps,
                          double *times, const double *by_op)
{
    const tri_session *s = &session->session;
    const tri_compile_config *compile = &s->config.compile;
    qsort(times, (size_t)num_steps, sizeof *times, ascending);
    double median = times[num_steps / 2];
    double tokens = (double)(compile->batch * compile->seq_len);
    double flops = tri_program_cost(&s->programs[TRI_PROGRAM_TRAIN]).flops;
    if (tri_cli_flag(cli, "json")) {
        printf("{\"model\": \"%s\", \"batch\": %" PRId64 ", \"seq_len\": %" PRId64
               ", \"threads\": %d, \"tokens_per_s\": %.1f, \"ms\": %.3f, \"min_ms\": %.3f, "
               "\"gflops\": %.1f}\n",
               compile->model.kind, compile->batch, compile->seq_len, s->device.num_threads,
               tokens / median, median * 1e3, times[0] * 1e3, flops / median * 1e-9);
        return;
    }
    char count[16];
    printf("%s, %s parameters, %" PRId64 " x %" PRId64 ", %s\n", compile->model.kind,
           tri_text_count((double)tri_param_total(&s->params), count), compile->batch,
           compile->seq_len, s->device.description);
    printf("step: median %.2f ms (fastest %.2f, slowest %.2f of %" PRId64
           "), %.1f tokens/s, %.1f GFLOP/s\n\n",
           median * 1e3, times[0] * 1e3, times[num_steps - 1] * 1e3, num_steps, tokens / median,
           flops / median * 1e-9);
    print_operators(&s->programs[TRI_PROGRAM_TRAIN], by_op, (double)num_steps);
}

static int bench_train(const tri_cli *cli)
{
    tr_error err = {0};
    int64_t num_steps = 5;
    tr_session *session;
    if (tri_cli_flag_int(cli, "steps", 1, 100000, &num_steps, &err) != TR_OK ||
        tr_session_create(cli->settings, &session, &err) != TR_OK)
        return tri_cli_fail(&err);
    double *times = calloc((size_t)num_steps, sizeof *times), by_op[TRI_NUM_OPS] = {0};
    tr_status status = times ? measure(session, num_steps, times, by_op, &err)
                             : tri_fail(&err, TR_ERROR_RUNTIME, "no memory");
    if (status == TR_OK)
        print_results(cli, session, num_steps, times, by_op);
    free(times);
    tr_session_destroy(session);
    return status == TR_OK ? TRI_EXIT_OK : tri_cli_fail(&err);
}

/* A flag that only the other benchmark has would otherwise be ignored in silence. */
static tr_status check_flags(const tri_cli *cli, bool comm, tr_error *err)
{
    for (int i = 0; i < cli->num_flags; i++) {
        const tri_flag *flag = cli->flags[i].flag;
        bool of_comm = strncmp(flag->help, "comm:", 5) == 0;
        if (of_comm && !comm)
            return tri_fail(err, TR_ERROR_INPUT, "--%s belongs to trireme bench comm", flag->name);
        if (comm && strcmp(flag->name, "steps") == 0)
            return tri_fail(err, TR_ERROR_INPUT, "--steps belongs to trireme bench [FILE.yaml]");
    }
    return TR_OK;
}

int tri_verb_bench(const tri_cli *cli)
{
    tr_error err = {0};
    const char *what = cli->file || cli->num_operands == 0 ? "train" : cli->operands[0];
    bool comm = strcmp(what, "comm") == 0;
    if (check_flags(cli, comm, &err) != TR_OK)
        return tri_cli_fail(&err);
    if (cli->num_operands > 1 || (!comm && strcmp(what, "train") != 0)) {
        tri_cli_error("\"%.60s\" is not something to measure; there are train and comm, and a "
                      "settings file or run directory has a / or .yaml in its name",
                      cli->operands[cli->num_operands - 1]);
        return TRI_EXIT_USAGE;
    }
    return comm ? tri_bench_comm(cli) : bench_train(cli);
}
