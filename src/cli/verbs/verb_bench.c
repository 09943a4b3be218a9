/* trireme bench: steps on made-up data, with the time of each operator; or, as trireme bench comm,
 * the collectives of ranks (bench_comm.c); or, as trireme bench generate, text (bench_generate.c);
 * or, as trireme bench matmul, products (bench_matmul.c). */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/api.h"
#include "base/samples.h"
#include "cli/bench/bench_comm.h"
#include "cli/bench/bench_device.h"
#include "cli/bench/bench_generate.h"
#include "cli/bench/bench_matmul.h"
#include "cli/bench/bench_scaling.h"
#include "cli/cli.h"
#include "train/health/mfu.h"

/* What was measured, and what it is held against. */
typedef struct bench {
    tr_session *session;
    int64_t num_steps;
    bool paced;
    double *times; /* of each step */
    double by_op[TRI_NUM_OPS];
    int64_t num_timed;             /* steps that by_op is the sum of */
    double peak_flops, peak_bytes; /* of products and of copies; 0: not known */
    double peak_flops8;            /* of products of 8-bit operands */
} bench;

/* The least time that an operator could take here: its arithmetic at the rate of a large product,
 * its bytes at the rate of a large copy. Only products and attention can run at the former. */
static double limit_of(const bench *b, const tri_program *program, const tri_instr *instr)
{
    tri_op op = instr->op;
    const tri_cost *cost = &instr->cost;
    bool float8 = tri_instr_float8(program, instr);
    bool product = float8 || op == TRI_OP_MATMUL || op == TRI_OP_GROUPED ||
                   op == TRI_OP_GROUPED_GRAD || op == TRI_OP_ATTENTION ||
                   op == TRI_OP_ATTENTION_GRAD;
    double peak = float8 ? b->peak_flops8 : b->peak_flops;
    double flops = product && peak > 0 ? cost->flops / peak : 0;
    double bytes = b->peak_bytes > 0 ? cost->bytes / b->peak_bytes : 0;
    return flops > bytes ? flops : bytes;
}

static void print_operators(const bench *b, const tri_program *program)
{
    tri_cost cost[TRI_NUM_OPS] = {0};
    double limit[TRI_NUM_OPS] = {0}, total = 0, least = 0;
    size_t calls[TRI_NUM_OPS] = {0};
    for (size_t c = 0; c < program->num_calls; c++) {
        const tri_segment *segment = &program->segments[program->calls[c].segment];
        for (uint32_t i = 0; i < segment->count; i++) {
            const tri_instr *instr = &program->instrs[segment->first + i];
            if (!tri_call_runs(&program->calls[c], instr))
                continue;
            cost[instr->op].flops += instr->cost.flops;
            cost[instr->op].bytes += instr->cost.bytes;
            limit[instr->op] += limit_of(b, program, instr);
            calls[instr->op]++;
        }
    }
    for (int op = 0; op < TRI_NUM_OPS; op++) {
        total += b->by_op[op] / (double)b->num_timed;
        least += limit[op];
    }
    printf("  %-22s %7s %10s %7s %10s %8s %10s %9s\n", "operator", "calls", "ms/step", "share",
           "GFLOP/s", "GB/s", "limit ms", "of limit");
    for (int op = 0; op < TRI_NUM_OPS; op++) {
        double each = b->by_op[op] / (double)b->num_timed;
        if (calls[op])
            printf("  %-22s %7zu %10.3f %6.1f%% %10.1f %8.1f %10.3f %8.0f%%\n",
                   tri_op_get((tri_op)op)->name, calls[op], each * 1e3, 100 * each / total,
                   cost[op].flops / each * 1e-9, cost[op].bytes / each * 1e-9, limit[op] * 1e3,
                   100 * limit[op] / each);
    }
    printf("  %-22s %7s %10.3f %6s  %10s %8s %10.3f %8.0f%%\n", "all operators", "", total * 1e3,
           "", "", "", least * 1e3, 100 * least / total);
    if (b->peak_flops8 > 0)
        printf("8-bit products at %.4g TFLOP/s; ", b->peak_flops8 * 1e-12);
    printf(
        "limits: products at %.4g TFLOP/s, bytes at %.4g GB/s, both measured here; what fits the "
        "caches can be faster\n",
        b->peak_flops * 1e-12, b->peak_bytes * 1e-9);
    double median = b->times[b->num_steps / 2];
    printf("between operators: %.3f ms of a step (%.1f%%)\n", (median - total) * 1e3,
           100 * (median - total) / median);
}

/* --paced: whoever holds the other end takes turns with other programs, step by step, so that what
 * else the machine does hits all of them. */
static tr_status wait_for_line(const bench *b, int64_t step, tr_error *err)
{
    int c = 0;
    while (b->paced && c != '\n') {
        c = getchar();
        if (c == EOF)
            return tri_fail(err, TR_ERROR_INPUT,
                            "standard input ended before step %" PRId64 " of %" PRId64
                            ": with --paced every step waits for a line there",
                            step + 1, b->num_steps);
    }
    return TR_OK;
}

static void print_pace(const bench *b, int64_t step)
{
    if (!b->paced)
        return;
    printf("{\"step\": %" PRId64 ", \"step_ms\": %.3f}\n", step + 1, b->times[step] * 1e3);
    fflush(stdout);
}

/* On a device with a queue, steps are replays of a recording, and the operators are timed in steps
 * of their own. */
static tr_status measure(bench *b, tr_error *err)
{
    tri_session *s = &b->session->session;
    tri_executor *executor = &s->executors[TRI_PROGRAM_TRAIN];
    bool apart = s->device.def->queue;
    tr_step step;
    for (int64_t i = -2; i < b->num_steps; i++) { /* two to warm up */
        executor->time_by_op = i < 0 || apart ? NULL : b->by_op;
        if (i >= 0)
            TRI_TRY(wait_for_line(b, i, err));
        TRI_TRY(tr_session_step(b->session, &step, err));
        if (i < 0)
            continue;
        b->times[i] = step.seconds;
        print_pace(b, i);
    }
    b->num_timed = apart ? 3 : b->num_steps;
    executor->time_by_op = b->by_op;
    for (int64_t i = 0; apart && i < b->num_timed; i++)
        TRI_TRY(tr_session_step(b->session, &step, err));
    executor->time_by_op = NULL;
    const tri_device_def *def = s->device.def;
    if (def->peak_flops)
        b->peak_flops = def->peak_flops(&s->device, s->config.compile.precision.compute);
    if (def->peak_flops && s->config.compile.precision.linear8)
        b->peak_flops8 = def->peak_flops(&s->device, TRI_F8E4M3);
    if (def->peak_bytes)
        b->peak_bytes = def->peak_bytes(&s->device);
    return TR_OK;
}

static const char *precision_name(const tri_session *s)
{
    if (s->config.compile.precision.linear8)
        return "bf16, linear layers fp8";
    return s->config.device.tf32 ? "tf32" : tri_dtype_name(s->config.compile.precision.compute);
}

static void print_results(const tri_cli *cli, const bench *b)
{
    const tri_session *s = &b->session->session;
    const tri_compile_config *compile = &s->config.compile;
    tri_samples_sort(b->times, (size_t)b->num_steps);
    double median = b->times[b->num_steps / 2];
    double tokens = (double)(compile->batch * compile->seq_len);
    /* All that is computed makes the rate and HFU; MFU leaves out what is computed again. */
    double flops = tri_program_cost(&s->programs[TRI_PROGRAM_TRAIN]).flops;
    double model = flops - tri_program_redone(&s->programs[TRI_PROGRAM_TRAIN]).flops;
    double hfu = b->peak_flops > 0 ? flops / median / b->peak_flops : 0;
    double mfu = hfu * model / flops;
    tri_mfu_base base = tri_mfu_base_of(s, b->peak_flops);
    double sheet = base.datasheet ? model / median / base.flops : -1;
    uint64_t memory = s->store.device_bytes ? s->store.device_bytes : tri_store_total(&s->store);
    if (tri_cli_flag(cli, "json")) {
        printf("{\"model\": \"%s\", \"batch\": %" PRId64 ", \"seq_len\": %" PRId64
               ", \"device\": \"%s\", \"precision\": \"%s\", \"threads\": %d, "
               "\"tokens_per_s\": %.1f, \"ms\": %.3f, \"min_ms\": %.3f, \"gflops\": %.1f, "
               "\"mfu\": %.4f, \"hfu\": %.4f, \"memory_bytes\": %" PRIu64 ", \"datasheet_mfu\": ",
               compile->model.kind, compile->batch, compile->seq_len, s->device.description,
               precision_name(s), s->device.num_threads, tokens / median, median * 1e3,
               b->times[0] * 1e3, flops / median * 1e-9, mfu, hfu, memory);
        printf(sheet >= 0 ? "%.4f}\n" : "null}\n", sheet);
        return;
    }
    char count[16], planned[16], used[16];
    printf("%s, %s parameters, %" PRId64 " x %" PRId64 ", %s, %s\n", compile->model.kind,
           tri_text_count((double)tri_param_total(&s->params), count), compile->batch,
           compile->seq_len, precision_name(s), s->device.description);
    printf("step: median %.2f ms (fastest %.2f, slowest %.2f of %" PRId64
           "), %.1f tokens/s, %.1f GFLOP/s, MFU %.1f%%",
           median * 1e3, b->times[0] * 1e3, b->times[b->num_steps - 1] * 1e3, b->num_steps,
           tokens / median, flops / median * 1e-9, 100 * mfu);
    if (model < flops)
        printf(", HFU %.1f%%", 100 * hfu);
    printf(" of a large product here\n");
    if (sheet >= 0)
        printf("MFU %.1f%% of %s\n", 100 * sheet, base.words);
    if (s->store.device_bytes)
        printf("memory of the device: %s planned, %s allocated\n",
               tri_text_bytes((double)tri_store_total(&s->store), planned),
               tri_text_bytes((double)s->store.device_bytes, used));
    printf("\n");
    print_operators(b, &s->programs[TRI_PROGRAM_TRAIN]);
}

static int bench_train(const tri_cli *cli)
{
    tr_error err = {0};
    bench b = {.num_steps = 5, .paced = tri_cli_flag(cli, "paced")};
    if (tri_cli_flag_int(cli, "steps", 1, 100000, &b.num_steps, &err) != TR_OK ||
        tr_session_create(cli->settings, &b.session, &err) != TR_OK)
        return tri_cli_fail(&err);
    b.times = calloc((size_t)b.num_steps, sizeof *b.times);
    tr_status status =
        b.times ? measure(&b, &err) : tri_fail(&err, TR_ERROR_RUNTIME, "no memory for the times");
    if (status == TR_OK)
        print_results(cli, &b);
    free(b.times);
    tr_session_destroy(b.session);
    return status == TR_OK ? TRI_EXIT_OK : tri_cli_fail(&err);
}

/* Whether the help of a flag begins with the name: "comm, matmul: ...". */
static bool is_of(const tri_flag *flag, const char *what)
{
    size_t length = strlen(what);
    const char *end = strstr(flag->help, ": ");
    for (const char *at = flag->help; end && at < end; at += strcspn(at, ",:") + 2)
        if (strncmp(at, what, length) == 0 && (at[length] == ',' || at[length] == ':'))
            return true;
    return false;
}

/* A flag that only another benchmark has would otherwise be ignored in silence. */
static tr_status check_flags(const tri_cli *cli, const char *what, tr_error *err)
{
    static const char *const kinds[] = {"comm", "matmul", "scaling", "device"};
    for (int i = 0; i < cli->num_flags; i++) {
        const tri_flag *flag = cli->flags[i].flag;
        const char *of = NULL;
        for (size_t k = 0; k < sizeof kinds / sizeof *kinds && !is_of(flag, what); k++)
            of = !of && is_of(flag, kinds[k]) ? kinds[k] : of;
        if (of)
            return tri_fail(err, TR_ERROR_INPUT, "--%s belongs to trireme bench %s", flag->name,
                            of);
        bool steps =
            strcmp(what, "comm") != 0 && strcmp(what, "matmul") != 0 && strcmp(what, "device") != 0;
        if (!steps && strcmp(flag->name, "steps") == 0)
            return tri_fail(err, TR_ERROR_INPUT, "--steps belongs to trireme bench [FILE.yaml]%s",
                            strcmp(what, "device") == 0 ? "; --seconds says how long to measure"
                                                        : "");
        if (strcmp(flag->name, "paced") == 0 && strcmp(what, "train") != 0)
            return tri_fail(err, TR_ERROR_INPUT, "--paced belongs to trireme bench [FILE.yaml]");
    }
    return TR_OK;
}

int tri_verb_bench(const tri_cli *cli)
{
    static const struct {
        const char *name;
        int (*run)(const tri_cli *cli);
    } kinds[] = {{"train", bench_train},         {"generate", tri_bench_generate},
                 {"scaling", tri_bench_scaling}, {"matmul", tri_bench_matmul},
                 {"comm", tri_bench_comm},       {"device", tri_bench_device}};
    tr_error err = {0};
    const char *what = cli->file || cli->num_operands == 0 ? "train" : cli->operands[0];
    if (check_flags(cli, what, &err) != TR_OK)
        return tri_cli_fail(&err);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds && cli->num_operands <= 1; i++)
        if (strcmp(what, kinds[i].name) == 0)
            return kinds[i].run(cli);
    tri_cli_error("\"%.60s\" is not something to measure; there are train, generate, scaling, "
                  "matmul, comm and device, and a settings file or run directory has a / or .yaml "
                  "in its name",
                  cli->operands[cli->num_operands - 1]);
    return TRI_EXIT_USAGE;
}
