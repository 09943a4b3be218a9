/* trireme bench device: measures what work takes here, for trireme sim --profile. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/fs.h"
#include "base/system_memory.h"
#include "cli/bench/bench_comm.h"
#include "cli/bench/bench_device.h"
#include "cli/doc/json_doc.h"
#include "cli/text.h"
#include "device/cpu/isa.h"
#include "device/device.h"

/* ---- what is measured ---- */

/* The value of a line of /proc/cpuinfo; "" when there is none. */
static void cpu_line(const char *key, char *to, size_t size)
{
    char line[256];
    FILE *file = fopen("/proc/cpuinfo", "r");
    to[0] = 0;
    while (file && !to[0] && fgets(line, sizeof line, file)) {
        const char *value = strchr(line, ':');
        if (strncmp(line, key, strlen(key)) == 0 && value)
            snprintf(to, size, "%.*s", (int)strcspn(value + 2, "\n"), value + 2);
    }
    if (file)
        fclose(file);
}

void tri_device_bench_model(char *to, size_t size)
{
    cpu_line("model name", to, size);
}

static void describe(tri_measured *p, const char *kind, const char *isa)
{
    char clock[64];
    time_t now = time(NULL);
    struct tm utc;
    snprintf(p->kind, sizeof p->kind, "%s", kind);
    snprintf(p->isa, sizeof p->isa, "%s",
             strcmp(isa, "auto") == 0 ? tri_isa_name(tri_isa_detect()) : isa);
    strftime(p->date, sizeof p->date, "%Y-%m-%d %H:%M", gmtime_r(&now, &utc));
    snprintf(p->version, sizeof p->version, "%.30s", TRIREME_VERSION);
    p->cores = tri_device_num_cores();
    if (strcmp(kind, "cpu") != 0)
        return; /* what it is, and its memory, is known when it is open */
    tri_device_bench_model(p->model, sizeof p->model);
    cpu_line("cpu MHz", clock, sizeof clock);
    p->clock_mhz = strtod(clock, NULL);
    p->memory_bytes = (double)tri_system_memory_read("").total;
}

static void show_progress(const tri_device_bench *b, const char *what)
{
    if (b->quiet || !tri_terminal(stderr))
        return;
    fprintf(stderr, "\r\033[K%s", what);
    if (*what)
        fprintf(stderr, ", %.0f s of %.0f", tri_device_bench_now() - b->begin, b->seconds);
    fflush(stderr);
}

/* All cores as one rank; as many ranks as there are cores, or two; and one of those alone. With
 * --ranks also so many, where there are cores for them: others take turns, and only what messages
 * between them cost has to be measured. */
static tr_status make_tables(tri_device_bench *b, tr_error *err)
{
    int64_t more = 0;
    int cores = b->profile.cores;
    bool host = strcmp(b->profile.kind, "cpu") == 0;
    tri_measured_table_of(&b->profile, 1, host ? cores : 1);
    TRI_TRY(tri_cli_flag_int(b->cli, "ranks", 2, 64, &more, err));
    if (more > 0 && !host)
        return tri_fail(err, TR_ERROR_INPUT,
                        "--ranks is about ranks that share a processor; a GPU is measured alone");
    for (int ranks = 2; host && ranks <= cores && ranks <= 4; ranks *= 2) {
        tri_measured_table_of(&b->profile, ranks, cores / ranks);
        tri_measured_table_of(&b->profile, 1, cores / ranks);
    }
    b->num_ranks = (int)more;
    if (more > 0 && more <= cores) {
        tri_measured_table_of(&b->profile, (int)more, cores / (int)more);
        tri_measured_table_of(&b->profile, 1, cores / (int)more);
    }
    return TR_OK;
}

static tr_status take_message(tri_device_bench *b, tri_coll coll, int ranks, uint64_t bytes,
                              tr_error *err)
{
    char what[80];
    tri_comm_tunings tunings = {0};
    tri_comm_timing timing[TRI_MOST_IN_TURN] = {0};
    tri_comm_case c = {.coll = coll, .transport = "shm", .num_ranks = ranks, .num_algorithms = 1};
    c.algorithms[0] = "auto";
    c.bytes = tri_comm_case_bytes(coll, ranks, bytes);
    snprintf(what, sizeof what, "%s of %d ranks", tri_coll_name(coll), ranks);
    show_progress(b, what);
    TRI_TRY(tri_comm_measure(&c, &tunings, timing, err));
    tri_measured_message m = {coll, ranks, (double)c.bytes, timing[0].seconds};
    return tri_measured_add_message(&b->profile, &m)
               ? TR_OK
               : tri_fail(err, TR_ERROR_RUNTIME, "no memory for the messages");
}

/* Large ones first, and for a quarter of the time. */
static tr_status take_messages(tri_device_bench *b, tr_error *err)
{
    static const tri_coll colls[] = {TRI_COLL_ALL_REDUCE, TRI_COLL_ALL_GATHER,
                                     TRI_COLL_REDUCE_SCATTER, TRI_COLL_BROADCAST};
    static const uint64_t sizes[] = {8 << 20, 4096, 256 << 10, 64 << 20, 1 << 20, 32 << 10};
    double until = b->begin + b->seconds / 4;
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (int t = 0; t <= b->profile.num_tables; t++) {
            int ranks = t < b->profile.num_tables ? b->profile.tables[t].ranks : b->num_ranks;
            bool again = t == b->profile.num_tables && ranks <= b->profile.cores;
            for (size_t k = 0; ranks > 1 && !again && k < sizeof colls / sizeof *colls; k++)
                if (s == 0 || tri_device_bench_now() < until)
                    TRI_TRY(take_message(b, colls[k], ranks, sizes[s], err));
        }
    return TR_OK;
}

/* What a device cannot run, such as 8-bit products, is left out; the first case must run. */
static tr_status take_case(tri_device_bench *b, tri_measured_table *table, const tri_device_case *c,
                           const tri_device_precision *precision, double until, tr_error *err)
{
    char what[120];
    snprintf(what, sizeof what, "%d x %d: %s %s, width %d, %d x %d", table->ranks, table->threads,
             precision->name, c->kind, c->dim, c->batch, c->seq);
    show_progress(b, what);
    tr_status status = tri_device_bench_take(b, table, c, precision, until, err);
    if (status == TR_OK || table->num == 0)
        return status;
    b->num_failed++;
    b->failed = *err;
    return TR_OK;
}

/* FLOP/s of the last step. */
static double rate_of(const tri_measured_table *table, double flops)
{
    return table->num_steps ? flops / table->steps[table->num_steps - 1].seconds : INFINITY;
}

typedef struct pass {
    bool gpu;
    size_t num; /* cases */
    double end, flops_left;
    double rate[TRI_MEASURED_TABLES], start_s[TRI_MEASURED_TABLES];
} pass;

/* A case in all tables and types. One that would take longer than there is time for is left out,
 * but for the first. */
static tr_status take_everywhere(tri_device_bench *b, pass *now, const tri_device_case *c,
                                 size_t number, tr_error *err)
{
    const double rounds = 5; /* steps and a start, that a case takes at the least */
    const tri_device_precision *precision;
    double flops = tri_device_case_flops(c), ways = now->gpu ? 2 : b->profile.num_tables;
    for (size_t p = 0; (precision = tri_device_precision_at(now->gpu, p)) != NULL; p++)
        for (int t = 0; t < b->profile.num_tables; t++) {
            tri_measured_table *table = &b->profile.tables[t];
            double begin = tri_device_bench_now(), left = now->end - begin;
            double needs = now->rate[t] > 0 ? rounds * flops / now->rate[t] + now->start_s[t] : 0;
            if ((number > 0 || table->num > 0) && (left <= 0 || needs > left))
                continue;
            double share = flops / now->flops_left, even = 1.0 / (double)(now->num - number);
            double fair = fmax(0, left * (share + even) / 2 / ways);
            TRI_TRY(take_case(b, table, c, precision, begin + fair, err));
            double took = tri_device_bench_now() - begin;
            now->rate[t] = rate_of(table, flops);
            now->start_s[t] = fmax(0, took - fmax(fair, 3 * flops / now->rate[t]));
        }
    return TR_OK;
}

/* Case by case, so that little time gives a little of everything; on a host, where something else
 * may be in the way for a while, in two passes. */
static tr_status take_cases(tri_device_bench *b, tr_error *err)
{
    bool gpu = strcmp(b->profile.kind, "cuda") == 0;
    pass now = {.gpu = gpu};
    const tri_device_case *cases = tri_device_cases(gpu, &now.num);
    double begin = tri_device_bench_now(), all = b->begin + b->seconds - begin;
    for (int n = gpu ? 1 : 0; n < 2; n++) {
        now.end = begin + (n == 0 ? 0.55 : 1) * all;
        now.flops_left = 0;
        for (size_t k = 0; k < now.num; k++)
            now.flops_left += tri_device_case_flops(&cases[k]);
        for (size_t k = 0; k < now.num; k++) {
            TRI_TRY(take_everywhere(b, &now, &cases[k], k, err));
            now.flops_left -= tri_device_case_flops(&cases[k]);
        }
    }
    return TR_OK;
}

static void predict_checks(tri_device_bench *b)
{
    for (size_t i = 0; i < b->num_checks; i++) {
        tri_bench_check *check = &b->checks[i];
        tri_measured_table *table = &b->profile.tables[check->table];
        double sum = table->step_s;
        if (check->step >= table->num_steps)
            continue;
        for (size_t w = 0; w < check->num; w++) {
            double seconds = tri_measured_work(&b->profile, table, &check->works[w], NULL);
            sum += check->runs[w] * tri_measured_launch(table, seconds, check->launches[w]);
        }
        table->steps[check->step].predicted = sum;
    }
}

static tr_status measure(tri_device_bench *b, tr_error *err)
{
    TRI_TRY(make_tables(b, err));
    if (strcmp(b->profile.kind, "cpu") == 0) /* first: it forks, and there are no threads yet */
        TRI_TRY(take_messages(b, err));
    TRI_TRY(take_cases(b, err));
    show_progress(b, "");
    tri_measured_settle(&b->profile);
    predict_checks(b);
    return TR_OK;
}

tr_status tri_device_bench_run(const tri_cli *cli, double seconds, bool quiet,
                               tri_measured *profile, tr_error *err)
{
    const char *kind = tr_settings_string(cli->settings, "run.device");
    tri_device_bench b = {.cli = cli, .quiet = quiet};
    if (strcmp(kind, "auto") == 0)
        kind = cli->device.kind ? cli->device.kind : "cpu";
    if (strcmp(kind, "cpu") != 0 && strcmp(kind, "cuda") != 0)
        return tri_fail(err, TR_ERROR_INPUT,
                        "run.device is %s, which has nothing to measure; set run.device=cpu or "
                        "run.device=cuda",
                        kind);
    TRI_TRY(tri_device_check(kind, err));
    describe(&b.profile, kind, tr_settings_string(cli->settings, "run.isa"));
    b.begin = tri_device_bench_now();
    b.seconds = seconds > 0 ? seconds : strcmp(kind, "cpu") == 0 ? 60 : 300;
    tr_status status = measure(&b, err);
    for (size_t i = 0; i < b.num_checks; i++) {
        free(b.checks[i].works);
        free(b.checks[i].runs);
        free(b.checks[i].launches);
    }
    free(b.checks);
    if (status == TR_OK && b.num_failed && !quiet)
        fprintf(stderr, "trireme: %zu measurements were left out; the last: %s\n", b.num_failed,
                b.failed.message);
    if (status != TR_OK)
        tri_measured_fini(&b.profile);
    *profile = b.profile;
    return status;
}

/* ---- what came of it ---- */

static size_t num_samples(const tri_measured_table *table)
{
    size_t num = 0;
    for (size_t r = 0; r < table->num; r++)
        num += table->rows[r].num;
    return num;
}

static size_t num_checked(const tri_measured_table *table)
{
    size_t num = 0;
    for (size_t i = 0; i < table->num_steps; i++)
        num += !table->steps[i].seen;
    return num;
}

static void print_text(const tri_measured *p, double took, const char *path)
{
    printf("%s (%s), measured for %.0f s\n\n", p->device, p->model, took);
    printf("%6s %8s %7s %8s %6s %12s %12s  %s\n", "ranks", "threads", "kinds", "samples", "steps",
           "mean error", "worst", "of steps that are");
    for (int t = 0; t < p->num_tables; t++) {
        const tri_measured_table *table = &p->tables[t];
        double mean, worst;
        tri_measured_residual(table, &mean, &worst);
        printf("%6d %8d %7zu %8zu %6zu %11.1f%% %11.1f%%  %s\n", table->ranks, table->threads,
               table->num, num_samples(table), table->num_steps, 100 * mean, 100 * worst,
               num_checked(table) ? "no samples" : "samples");
    }
    printf("\nmessages: %zu; large products %.4g TFLOP/s, large copies %.4g GB/s\n",
           p->num_messages,
           p->dense[p->dense[TRI_RATE_16] > 0 ? TRI_RATE_16 : TRI_RATE_F32] * 1e-12,
           p->memory_bytes_per_s * 1e-9);
    tri_text_print(stdout, "written: %s; now: trireme sim FILE.yaml --profile %s\n", path, path);
}

static tr_status print_json(const tri_measured *p, double took, const char *path, tr_error *err)
{
    json_t *doc = tri_doc_begin();
    tri_doc_text(doc, "device", p->device);
    tri_doc_text(doc, "path", path);
    tri_doc_number(doc, "seconds", took);
    tri_doc_count(doc, "messages", (int64_t)p->num_messages);
    json_t *tables = tri_doc_list(doc, "tables");
    for (int t = 0; t < p->num_tables; t++) {
        const tri_measured_table *table = &p->tables[t];
        json_t *item = tri_doc_item(tables);
        double mean, worst;
        tri_measured_residual(table, &mean, &worst);
        tri_doc_count(item, "ranks", table->ranks);
        tri_doc_count(item, "threads", table->threads);
        tri_doc_count(item, "kinds", (int64_t)table->num);
        tri_doc_count(item, "samples", (int64_t)num_samples(table));
        tri_doc_count(item, "steps", (int64_t)table->num_steps);
        tri_doc_count(item, "unseen_steps", (int64_t)num_checked(table));
        tri_doc_number(item, "mean_error_share", mean);
        tri_doc_number(item, "worst_error_share", worst);
    }
    return tri_doc_print(doc, stdout, err);
}

int tri_bench_device(const tri_cli *cli)
{
    tr_error err = {0};
    const char *out = tri_cli_flag(cli, "out");
    const char *path = out ? out : "device.json";
    int64_t seconds = 0;
    double begin = tri_device_bench_now();
    tri_measured profile = {0};
    if (tri_cli_flag_int(cli, "seconds", 1, 3600, &seconds, &err) != TR_OK ||
        tri_measured_check_path(path, &err) != TR_OK ||
        tri_device_bench_run(cli, (double)seconds, false, &profile, &err) != TR_OK)
        return tri_cli_fail(&err);
    double took = tri_device_bench_now() - begin;
    tr_status status = tri_measured_write(&profile, path, &err);
    if (status == TR_OK && tri_cli_flag(cli, "json"))
        status = print_json(&profile, took, path, &err);
    else if (status == TR_OK)
        print_text(&profile, took, path);
    tri_measured_fini(&profile);
    return status == TR_OK ? TRI_EXIT_OK : tri_cli_fail(&err);
}
