/* trireme doctor --validate: each rank's device and link beside those of the others. */
#include "cli/verbs/doctor_validate.h"

#include "cli/doc/json_doc.h"
#include "cli/text.h"
#include "cli/verbs/doctor_ranks.h"
#include "train/health/validate.h"

typedef struct validation {
    int num_ranks;
    tri_validated *all;
} validation;

/* ---- what is told ---- */

static const struct {
    const char *name, *key; /* with its unit */
    const char *unit;       /* for people */
    double scale;
} figures[TRI_NUM_FIGURES] = {
    [TRI_FIGURE_PRODUCT] = {"products", "product_flops", "GFLOP/s", 1e-9},
    [TRI_FIGURE_COPY] = {"copies", "copy_bytes_per_s", "GB/s", 1e-9},
    [TRI_FIGURE_TO_DEVICE] = {"copies from the host", "to_device_bytes_per_s", "GB/s", 1e-9},
    [TRI_FIGURE_TO_HOST] = {"copies to the host", "to_host_bytes_per_s", "GB/s", 1e-9},
    [TRI_FIGURE_LATENCY] = {"latency of its link", "latency_seconds", "us", 1e6},
    [TRI_FIGURE_BANDWIDTH] = {"bandwidth of its link", "link_bytes_per_s", "GB/s", 1e-9},
};

static void print_off(const tri_validated *v, int rank)
{
    for (int f = 0; f < TRI_NUM_FIGURES; f++) {
        if (!(v->off >> f & 1))
            continue;
        tri_text_print(stdout, "off     rank %d on %s: %s %.4g %s, the others %.4g", rank, v->host,
                       figures[f].name, v->figure[f] * figures[f].scale, figures[f].unit,
                       v->peers[f] * figures[f].scale);
        if (f == TRI_FIGURE_LATENCY || f == TRI_FIGURE_BANDWIDTH)
            printf(" (to rank %d)", (int)v->next);
        printf("\n");
    }
}

/* Of devices that have memory of their own. */
static void print_buses(const validation *v)
{
    for (int r = 0; r < v->num_ranks; r++) {
        const double *figure = v->all[r].figure;
        if (figure[TRI_FIGURE_TO_DEVICE] > 0)
            printf("%s%4d  from the host %.2f GB/s, to the host %.2f GB/s\n", r == 0 ? "\n" : "", r,
                   figure[TRI_FIGURE_TO_DEVICE] * 1e-9, figure[TRI_FIGURE_TO_HOST] * 1e-9);
    }
}

static void print_table(const validation *v, int num_off)
{
    printf("rank  host              products      copies     link  latency  bandwidth\n");
    printf("                         GFLOP/s        GB/s               us       GB/s\n");
    for (int r = 0; r < v->num_ranks; r++) {
        const tri_validated *a = &v->all[r];
        char link[24] = "-";
        if (a->next >= 0)
            snprintf(link, sizeof link, "%s%d", a->crosses ? "=> " : "-> ", (int)a->next);
        tri_text_print(stdout, "%4d  %-16.16s %9.2f %11.2f %8s %8.2f %10.2f%s\n", r, a->host,
                       a->figure[TRI_FIGURE_PRODUCT] * 1e-9, a->figure[TRI_FIGURE_COPY] * 1e-9,
                       link, a->figure[TRI_FIGURE_LATENCY] * 1e6,
                       a->figure[TRI_FIGURE_BANDWIDTH] * 1e-9, a->off ? "  off" : "");
    }
    print_buses(v);
    printf("\n");
    for (int r = 0; r < v->num_ranks; r++)
        print_off(&v->all[r], r);
    if (v->num_ranks == 1)
        printf("One rank has nobody to be compared with; --ranks N starts more.\n");
    else if (num_off == 0)
        printf("All ranks are alike.\n");
}

static tr_status print_json(const validation *v, int num_off, tr_error *err)
{
    json_t *doc = tri_doc_begin(), *ranks = tri_doc_list(doc, "ranks");
    for (int r = 0; r < v->num_ranks; r++) {
        const tri_validated *a = &v->all[r];
        json_t *item = tri_doc_item(ranks), *off;
        tri_doc_count(item, "rank", r);
        tri_doc_text(item, "host", a->host);
        tri_doc_count_from(item, "link_to", a->next, 0);
        tri_doc_flag(item, "link_crosses_machines", a->crosses != 0);
        for (int f = 0; f < TRI_NUM_FIGURES; f++)
            tri_doc_number(item, figures[f].key, a->figure[f]);
        off = tri_doc_object(item, "off");
        for (int f = 0; f < TRI_NUM_FIGURES; f++)
            tri_doc_flag(off, figures[f].key, a->off >> f & 1);
    }
    tri_doc_count(doc, "num_off", num_off);
    return tri_doc_print(doc, stdout, err);
}

static tr_status tell(const void *context, const tri_cli *cli, void *result, int num_ranks,
                      int *code, tr_error *err)
{
    (void)context;
    validation v = {num_ranks, result};
    int num_off = tri_validate_judge(v.all, v.num_ranks);
    *code = num_off > 0 ? TRI_EXIT_FAILED : TRI_EXIT_OK;
    if (tri_cli_flag(cli, "json"))
        return print_json(&v, num_off, err);
    print_table(&v, num_off);
    return TR_OK;
}

static tr_status measure(const tri_cli *cli, tri_comm *comm, tri_device *device, void *result,
                         tr_error *err)
{
    (void)cli;
    return tri_validate(comm, device, result, err);
}

int tri_doctor_validate(const tri_cli *cli)
{
    const tri_doctor_job job = {
        .cli = cli, .bytes_of_a_rank = sizeof(tri_validated), .measure = measure, .tell = tell};
    return tri_doctor_run_ranks(&job);
}
