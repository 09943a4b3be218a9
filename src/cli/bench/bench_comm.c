/* trireme bench comm: how fast the ranks talk. Lists of operations, algorithms and sizes make the
 * rows; bandwidths are those of nccl-tests, so that numbers can be held beside theirs. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fs.h"
#include "base/settings/nearest.h"
#include "cli/bench/bench_comm.h"
#include "cli/launch/environment.h"
#include "cli/launch/launch.h"
#include "cli/text.h"
#include "cli/word_list.h"
#include "comm/comm.h"

enum { MOST_WORDS = TRI_MOST_WORDS, MOST_RANKS = 256 };

static const char *choice_at(size_t i)
{
    return i == 0 ? "auto" : tri_algorithm_name_at(i - 1);
}

static bool shares_memory(const char *transport)
{
    return strcmp(transport, "shm") == 0 || strcmp(transport, "thread") == 0;
}

/* --draw ALGORITHM prints rounds; --draw FILE.svg makes a picture of the rows. */
static const char *picture(const tri_cli *cli)
{
    const char *draw = tri_cli_flag(cli, "draw");
    size_t length = draw ? strlen(draw) : 0;
    return length > 4 && strcmp(draw + length - 4, ".svg") == 0 ? draw : NULL;
}

static bool draws_rounds(const tri_cli *cli)
{
    return tri_cli_flag(cli, "draw") && !picture(cli);
}

/* ---- what was asked for ---- */

typedef struct options {
    tri_coll colls[MOST_WORDS];
    int num_colls;
    tri_word_list algorithms;
    uint64_t sizes[MOST_WORDS];
    int num_sizes;
    int64_t num_ranks;
    tri_comm_case shape; /* what all rows have in common */
    bool json, turns;
    tri_comm_tunings tunings;
    tri_comm_plot plot;
    tr_comm *comm; /* of ranks that somebody else started; NULL: each row starts its own */
} options;

/* "4096", "32k", "1m", "1.5g": powers of 1024, as they are used for buffers. */
static tr_status read_size(const char *text, uint64_t *bytes, tr_error *err)
{
    static const char units[] = "kmg";
    char *end;
    double value = strtod(text, &end);
    const char *unit = end > text && *end ? strchr(units, *end | 0x20) : NULL;
    if (unit) {
        for (const char *u = units; u <= unit; u++)
            value *= 1024;
        end++;
        if (*end == 'b' || *end == 'B')
            end++;
    }
    if (end == text || *end || !(value >= 1 && value <= 64.0 * 1024 * 1024 * 1024))
        return tri_fail(err, TR_ERROR_INPUT,
                        "--sizes: \"%.40s\" is not a size; write 1k, 32k, 1m, 16m (of 1024)", text);
    *bytes = (uint64_t)value;
    return TR_OK;
}

static tr_status read_colls(const tri_cli *cli, options *o, tr_error *err)
{
    tri_word_list list;
    /* What training uses; a drawing is of one. */
    const char *usual = tri_cli_flag(cli, "draw")
                            ? "all_reduce"
                            : "all_reduce,all_gather,reduce_scatter,all_to_all";
    tr_status status = tri_word_list_read(cli, "ops", usual, &list, err);
    for (int i = 0; i < list.num && status == TR_OK; i++)
        if (tri_coll_parse(list.words[i], &o->colls[i]))
            o->num_colls = i + 1;
        else
            status = tri_word_unknown("ops", list.words[i], tri_coll_name_at, err);
    free(list.text);
    return status;
}

static tr_status read_algorithms(const tri_cli *cli, options *o, tr_error *err)
{
    const char *usual = shares_memory(o->shape.transport)        ? "direct,ring,tree"
                        : strcmp(o->shape.transport, "mpi") == 0 ? "native,ring,rabenseifner"
                                                                 : "ring,tree,rabenseifner,bruck";
    TRI_TRY(tri_word_list_read(cli, "algorithms", usual, &o->algorithms, err));
    if (o->turns && o->algorithms.num > TRI_MOST_IN_TURN)
        return tri_fail(err, TR_ERROR_INPUT,
                        "--turns takes up to %d algorithms, --algorithms has %d", TRI_MOST_IN_TURN,
                        o->algorithms.num);
    for (int i = 0; i < o->algorithms.num; i++)
        if (strcmp(o->algorithms.words[i], "auto") != 0 &&
            strcmp(o->algorithms.words[i], "native") != 0)
            TRI_TRY(tri_word_algorithm("algorithms", o->algorithms.words[i], choice_at,
                                       o->num_ranks, &(const tri_algorithm *){NULL},
                                       &(tri_coll_shape){0}, err));
    return TR_OK;
}

static tr_status read_sizes(const tri_cli *cli, options *o, tr_error *err)
{
    tri_word_list list;
    const char *usual = picture(cli) ? "1k,4k,16k,64k,256k,1m,4m,16m" : "1k,32k,1m,16m,128m";
    tr_status status = tri_word_list_read(cli, "sizes", usual, &list, err);
    for (int i = 0; i < list.num && status == TR_OK; i++)
        status = read_size(list.words[i], &o->sizes[o->num_sizes++], err);
    free(list.text);
    return status;
}

static const char *const transports[] = {"shm", "tcp", "mpi", "thread", NULL};

static tr_status read_options(const tri_cli *cli, int64_t num_ranks, options *o, tr_error *err)
{
    *o = (options){.num_ranks = num_ranks};
    o->json = tri_cli_flag(cli, "json");
    o->shape.predicts = tri_cli_flag(cli, "predict");
    o->turns = tri_cli_flag(cli, "turns") || o->shape.predicts;
    o->shape.bound = o->turns;
    o->shape.uses = tri_cli_flag(cli, "use");
    o->shape.check_all = tri_cli_flag(cli, "check");
    o->shape.private_memory = tri_cli_flag(cli, "private");
    const char *transport = tri_cli_flag(cli, "transport");
    o->shape.transport = transport ? transport : "shm";
    for (size_t i = 0; strcmp(o->shape.transport, transports[i]) != 0; i++)
        if (!transports[i + 1])
            return tri_fail(err, TR_ERROR_INPUT,
                            "--transport is \"%.40s\"; there are shm and tcp (processes), mpi "
                            "(under mpirun) and thread",
                            transport);
    TRI_TRY(tri_cli_flag_int(cli, "ranks", 1, MOST_RANKS, &o->num_ranks, err));
    o->shape.num_ranks = (int)o->num_ranks;
    TRI_TRY(read_colls(cli, o, err));
    TRI_TRY(read_algorithms(cli, o, err));
    return read_sizes(cli, o, err);
}

/* ---- rows ---- */

double tri_comm_bus_factor(tri_coll coll, int num_ranks)
{
    double others = (double)(num_ranks - 1) / num_ranks;
    switch (coll) {
    case TRI_COLL_ALL_REDUCE:
        return 2 * others;
    case TRI_COLL_ALL_GATHER:
    case TRI_COLL_REDUCE_SCATTER:
    case TRI_COLL_ALL_TO_ALL:
    case TRI_COLL_GATHER:
    case TRI_COLL_SCATTER:
        return others;
    default:
        return 1;
    }
}

static void print_row(const options *o, const tri_comm_case *c, const char *algorithm,
                      const tri_comm_timing *t, double predicted)
{
    double algorithm_bw = t->seconds > 0 ? (double)c->bytes / t->seconds * 1e-9 : 0;
    double bus_bw = algorithm_bw * tri_comm_bus_factor(c->coll, c->num_ranks);
    if (o->json)
        printf("{\"op\": \"%s\", \"algorithm\": \"%s\", \"transport\": \"%s\", \"memory\": \"%s\", "
               "\"ranks\": %d, \"bytes\": %" PRIu64 ", \"time_us\": %.3f, \"min_us\": %.3f, "
               "\"median_us\": %.3f, "
               "\"max_us\": %.3f, \"algbw_gb_s\": %.4f, \"busbw_gb_s\": %.4f, \"wrong\": %" PRId64
               ", \"samples\": %d, \"calls\": %d",
               tri_coll_name(c->coll), algorithm, c->transport,
               c->private_memory ? "private" : "shared", c->num_ranks, c->bytes, t->seconds * 1e6,
               t->fastest * 1e6, t->median * 1e6, t->slowest * 1e6, algorithm_bw, bus_bw,
               t->num_wrong, t->num_samples, t->num_calls);
    else
        printf("%-15s %-13s %12" PRIu64 " %12.2f %12.2f %10.3f %10.3f %8" PRId64,
               tri_coll_name(c->coll), algorithm, c->bytes, t->seconds * 1e6, t->fastest * 1e6,
               algorithm_bw, bus_bw, t->num_wrong);
    if (o->shape.predicts && o->json)
        printf(", \"predicted_us\": %.3f", predicted * 1e6);
    else if (o->shape.predicts)
        printf(" %12.2f", predicted * 1e6);
    if (o->json && t->runs[0] && strcmp(t->runs, algorithm) != 0)
        printf(", \"chosen\": \"%s\"", t->runs);
    else if (t->runs[0] && strcmp(t->runs, algorithm) != 0)
        printf("  %s", t->runs);
    printf(o->json ? "}\n" : "\n");
    fflush(stdout); /* now: the next row forks, and may take a while */
}

static void print_head(const options *o)
{
    if (o->json || (o->comm && tr_comm_rank(o->comm) != 0))
        return;
    printf("%d ranks over %s, fp32, sum, vectors in %s memory\n\n", o->shape.num_ranks,
           o->shape.transport,
           o->shape.private_memory || !shares_memory(o->shape.transport) ? "private" : "shared");
    printf("%-15s %-13s %12s %12s %12s %10s %10s %8s", "operation", "algorithm", "bytes", "time us",
           "fastest us", "alg GB/s", "bus GB/s", "wrong");
    if (o->shape.predicts)
        printf(" %12s", "formula us");
    printf("\n");
    fflush(stdout);
}

/* By the formula at the measured prices; 0 where there is none. `auto` is what it chose. */
static double predict(const options *o, const tri_tuning *tuning, const tri_comm_case *c,
                      const tri_comm_timing *t)
{
    const tri_algorithm *algorithm;
    tri_coll_shape shape = tri_shape_flat(c->num_ranks);
    double bytes = tri_comm_formula_bytes(c, (double)c->bytes);
    if (!o->shape.predicts || tri_algorithm_parse(t->runs, &algorithm, &shape, NULL) != TR_OK)
        return 0;
    return tri_tuning_time(tuning, algorithm, c->coll, &shape, bytes);
}

/* Rows of one operation and size. */
static tr_status run_case(options *o, tri_comm_case *c, uint64_t bytes, int64_t *num_wrong,
                          tr_error *err)
{
    tri_comm_timing timings[TRI_MOST_IN_TURN];
    tri_comm_tunings tunings = o->tunings;
    c->bytes = tri_comm_case_bytes(c->coll, c->num_ranks, bytes);
    tr_status status = o->comm ? tri_comm_measure_on(o->comm, c, &tunings, timings, err)
                               : tri_comm_measure(c, &tunings, timings, err);
    if (status != TR_OK)
        return tri_fail_prefix(err, status, "%s, %s, %" PRIu64 " bytes", tri_coll_name(c->coll),
                               c->algorithms[0], c->bytes);
    for (int a = 0; a < c->num_algorithms; a++) {
        double predicted = predict(o, &tunings.prediction, c, &timings[a]);
        if (!o->comm || tr_comm_rank(o->comm) == 0)
            print_row(o, c, c->algorithms[a], &timings[a], predicted);
        tri_comm_point point = {c->coll,  c->algorithms[a],   c->num_ranks,
                                c->bytes, timings[a].seconds, predicted};
        TRI_TRY(tri_comm_plot_add(&o->plot, &point, err));
        *num_wrong += timings[a].num_wrong;
    }
    return TR_OK;
}

/* Whether an algorithm has the operation, such as not: all_to_all over a tree. */
static bool has_operation(const options *o, const char *name, tri_coll coll)
{
    const tri_algorithm *algorithm;
    tri_coll_shape shape = tri_shape_flat(o->shape.num_ranks);
    if (strcmp(name, "auto") == 0 || strcmp(name, "native") == 0)
        return true;
    return tri_algorithm_parse(name, &algorithm, &shape, NULL) == TR_OK &&
           tri_algorithm_supports(algorithm, coll, &shape);
}

/* All algorithms of a size in turns, or all sizes of an algorithm. */
static tr_status run_operation(options *o, tri_coll coll, int64_t *num_wrong, tr_error *err)
{
    tri_comm_case c = o->shape;
    int num_sizes = coll == TRI_COLL_BARRIER ? 1 : o->num_sizes;
    c.coll = coll;
    for (int a = 0; a < o->algorithms.num; a++) {
        if (!has_operation(o, o->algorithms.words[a], coll))
            continue;
        c.num_algorithms += o->turns || c.num_algorithms == 0;
        c.algorithms[c.num_algorithms - 1] = o->algorithms.words[a];
        for (int i = 0; !o->turns && i < num_sizes; i++)
            TRI_TRY(run_case(o, &c, o->sizes[i], num_wrong, err));
    }
    for (int i = 0; o->turns && c.num_algorithms > 0 && i < num_sizes; i++)
        TRI_TRY(run_case(o, &c, o->sizes[i], num_wrong, err));
    return TR_OK;
}

static bool lists_auto(const options *o)
{
    for (int a = 0; a < o->algorithms.num; a++)
        if (strcmp(o->algorithms.words[a], "auto") == 0)
            return true;
    return false;
}

/* Those between which `auto` chooses. */
static tri_call_sizes sizes_to_choose(const options *o)
{
    tri_call_sizes sizes = {0};
    tri_comm_case c = o->shape;
    for (int k = 0; lists_auto(o) && k < o->num_colls; k++)
        for (int i = 0; o->colls[k] != TRI_COLL_BARRIER && i < o->num_sizes; i++) {
            c.coll = o->colls[k];
            uint64_t bytes = tri_comm_case_bytes(c.coll, c.num_ranks, o->sizes[i]);
            tri_call_sizes_add(&sizes, c.coll, (uint64_t)tri_comm_formula_bytes(&c, (double)bytes));
        }
    return sizes;
}

static tr_status run_rows(options *o, int64_t *num_wrong, tr_error *err)
{
    o->plot.transport = o->shape.transport;
    /* As training does, where what messages cost decides. */
    bool chooses = lists_auto(o) && !shares_memory(o->shape.transport);
    tri_call_sizes sizes = sizes_to_choose(o);
    if (o->shape.predicts || chooses)
        TRI_TRY(o->comm ? tri_comm_measure_prices_on(o->comm, &o->shape, &sizes, &o->tunings, err)
                        : tri_comm_measure_prices(&o->shape, &sizes, &o->tunings, err));
    print_head(o);
    for (int k = 0; k < o->num_colls; k++)
        TRI_TRY(run_operation(o, o->colls[k], num_wrong, err));
    return TR_OK;
}

static tr_status draw(const tri_cli *cli, const options *o, tr_error *err)
{
    const char *name = tri_cli_flag(cli, "draw");
    const tri_algorithm *algorithm;
    tri_coll_shape shape;
    for (size_t i = 0; strcmp(name, "list") == 0 && tri_algorithm_at(i); i++)
        printf("  %-13s %s\n", tri_algorithm_at(i)->name, tri_algorithm_at(i)->help);
    if (strcmp(name, "list") == 0)
        return TR_OK;
    TRI_TRY(tri_word_algorithm("draw", name, tri_algorithm_name_at, o->num_ranks, &algorithm,
                               &shape, err));
    for (int k = 0; k < o->num_colls; k++) {
        if (k > 0)
            printf("\n");
        TRI_TRY(tri_comm_draw(algorithm, o->colls[k], &shape, 0, err));
    }
    return TR_OK;
}

/* One rank of a world that somebody else started. */
static int run_joined(const tri_cli *cli, const tri_bootstrap *bootstrap, void *context)
{
    options o = *(options *)context;
    tr_error err = {0};
    int64_t num_wrong = 0;
    tri_bootstrap own = *bootstrap;
    own.sums = tr_settings_bool(cli->settings, "run.message_sums");
    tr_status status = tri_comm_create(&own, o.shape.transport, &o.comm, &err);
    if (status == TR_OK)
        status = run_rows(&o, &num_wrong, &err);
    if (status == TR_OK && picture(cli) && bootstrap->rank == 0)
        status = tri_comm_plot_write(&o.plot, picture(cli), &err);
    free(o.plot.points);
    int code = status == TR_OK ? TRI_EXIT_OK : tri_cli_rank_fail(bootstrap, &err);
    tri_comm_destroy(o.comm);
    if (num_wrong > 0) {
        tri_cli_error("%" PRId64 " elements were wrong", num_wrong);
        code = TRI_EXIT_FAILED;
    }
    return code;
}

int tri_bench_comm(const tri_cli *cli)
{
    tr_error err = {0};
    options o = {0};
    int64_t num_wrong = 0;
    tri_environment world;
    tr_status status = tri_environment_read(&world, &err);
    int64_t num_ranks = world.given ? world.size : draws_rounds(cli) ? 4 : 2;
    if (status == TR_OK)
        status = read_options(cli, num_ranks, &o, &err);
    if (status == TR_OK && picture(cli) && world.rank == 0)
        status = tri_check_output(picture(cli), false, &err);
    bool joins = world.given && world.size > 1 && !draws_rounds(cli);
    if (status == TR_OK && strcmp(o.shape.transport, "mpi") == 0 && !joins)
        status = tri_fail(&err, TR_ERROR_INPUT,
                          "--transport mpi needs ranks that mpirun started: mpirun -n %d trireme "
                          "bench comm --transport mpi",
                          (int)o.num_ranks);
    if (status == TR_OK && joins) {
        int code = tri_cli_launch(cli, (int)o.num_ranks, run_joined, &o, NULL);
        free(o.algorithms.text);
        return code;
    }
    if (status == TR_OK)
        status = draws_rounds(cli) ? draw(cli, &o, &err) : run_rows(&o, &num_wrong, &err);
    if (status == TR_OK && picture(cli))
        status = tri_comm_plot_write(&o.plot, picture(cli), &err);
    free(o.plot.points);
    free(o.algorithms.text);
    if (status != TR_OK)
        return tri_cli_fail(&err);
    if (num_wrong > 0) {
        tri_cli_error("%" PRId64 " elements were wrong", num_wrong);
        return TRI_EXIT_FAILED;
    }
    return TRI_EXIT_OK;
}
