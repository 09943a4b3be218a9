#include "cli/verbs/doctor_cluster.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/fs.h"
#include "cli/doc/json_doc.h"
#include "cli/text.h"
#include "cli/verbs/doctor_ranks.h"
#include "mesh/device_names.h"
#include "train/health/survey.h"
#include "train/ranks.h"

/* What a file of ours begins with. */
static const char mark[] = "# trireme doctor --cluster";

/* What is told: figures, and what follows from them. */
typedef struct finding {
    const char *path;
    const tri_survey *survey;
    tri_cluster_spec spec;
    bool gpus_left; /* that the ranks did not use */
} finding;

/* ---- the path ---- */

/* Over an earlier file of this kind, and over nothing else. */
static tr_status check_path(const void *context, tr_error *err)
{
    const char *path = context;
    char *data;
    size_t num_bytes;
    if (!tri_cluster_is_path(path))
        return tri_fail(err, TR_ERROR_INPUT,
                        "sim --cluster would take \"%.200s\" for the name of a ready cluster; give "
                        "--cluster a path with a dot or a slash before any comma, colon or =, such "
                        "as ours.cluster",
                        path);
    TRI_TRY(tri_check_output(path, false, err));
    if (!tri_path_exists(path))
        return TR_OK;
    TRI_TRY(tri_file_read(path, &data, &num_bytes, err));
    bool ours = strncmp(data, mark, sizeof mark - 1) == 0;
    free(data);
    return ours ? TR_OK
                : tri_fail(err, TR_ERROR_INPUT,
                           "%s is there and was not written by doctor --cluster, so it is left "
                           "alone; give --cluster another name",
                           path);
}

/* ---- the file ---- */

static void add_head(const finding *f, tri_text *text)
{
    const tri_survey *s = f->survey;
    char date[32];
    time_t now = time(NULL);
    struct tm parts;
    strftime(date, sizeof date, "%Y-%m-%d %H:%M", localtime_r(&now, &parts));
    tri_text_add(text, "%s, version %s, %s\n# hosts: ", mark, TRIREME_VERSION, date);
    tri_text_add_printable(text, s->hosts);
    tri_text_add(text, "\n# ranks: %d, on each ", s->num_ranks);
    tri_text_add_printable(text, s->device);
    tri_text_add(text, "\n# messages: %s%s\n", s->transport,
                 s->by_host ? ", copied from and to the memory of the host" : "");
}

static void add_measured(const finding *f, tri_text *text)
{
    const tri_cluster_found *found = &f->survey->found;
    tri_text_add(text, "# measured, medians of %d tries:\n", TRI_SURVEY_TRIES);
    if (found->devices_per_node > 1)
        tri_text_add(text,
                     "#   within a node: a short message %.3g us; one pair %.4g GB/s; each of %u "
                     "that gather at once %.4g GB/s (node_bandwidth)\n",
                     found->latency_s * 1e6, found->pair_bytes_per_s * 1e-9,
                     found->devices_per_node, found->node_bytes_per_s * 1e-9);
    if (found->nodes > 1)
        tri_text_add(text,
                     "#   between two nodes: a short message %.3g us; one pair %.4g GB/s, all %u "
                     "at once %.4g GB/s together\n",
                     found->cross_latency_s * 1e6, found->cross_pair_bytes_per_s * 1e-9,
                     found->devices_per_node, found->cross_bytes_per_s * 1e-9);
    for (uint32_t d = 0; d < found->num_distances; d++)
        tri_text_add(text,
                     "#   all nodes at once, each to that %u places on: %.4g GB/s of a node\n",
                     1u << d, found->distance_bytes_per_s[d] * 1e-9);
    if (found->nodes > 1)
        tri_text_add(text,
                     "# derived: cards_per_node from %.3g times one pair's bandwidth for all "
                     "pairs%s\n",
                     found->cross_bytes_per_s / found->cross_pair_bytes_per_s,
                     f->spec.rack_nodes ? "; rack_nodes and oversubscription from all nodes at once"
                                        : "");
}

static void add_assumed(const finding *f, tri_text *text)
{
    const tri_survey *s = f->survey;
    if (s->found.devices_per_node == 1)
        tri_text_add(text, "# assumed: node_bandwidth, from copies in the host's memory: a node "
                           "has one rank, which sends nothing there\n");
    if (s->found.nodes > 1)
        tri_text_add(text, "# assumed: cards carry both ways at once, and all nodes are alike\n");
    if (s->found.nodes > 1 && !f->spec.rack_nodes)
        tri_text_add(text, "# assumed: one switch for all nodes%s\n",
                     s->found.num_distances ? ", since none was slower with all at once"
                                            : "; two of them cannot tell");
    if (s->scattered)
        tri_text_add(text, "# assumed: consecutive ranks share a node, which these did not\n");
    if (s->found.nodes == 1)
        tri_text_add(text, "# not measured: a network, since there is one node\n");
    if (!f->spec.device)
        tri_text_add(text, "# not said: the device; add --device NAME to sim\n");
}

static tr_status write_file(const finding *f, tr_error *err)
{
    tri_text text;
    tri_text_init(&text);
    add_head(f, &text);
    add_measured(f, &text);
    add_assumed(f, &text);
    tri_cluster_write_lines(&f->spec, f->survey->found.nodes, &text);
    tr_status status = text.failed ? tri_fail(err, TR_ERROR_RUNTIME, "no memory for %s", f->path)
                                   : tri_file_replace(f->path, text.chars, text.length, err);
    tri_text_fini(&text);
    return status;
}

/* ---- what is told ---- */

static void print_row(const char *what, double latency, double rate)
{
    char seconds[24] = "", bytes[24] = "";
    if (latency > 0)
        snprintf(seconds, sizeof seconds, "%.3g us", latency * 1e6);
    if (rate > 0)
        snprintf(bytes, sizeof bytes, "%.4g GB/s", rate * 1e-9);
    printf("%-40s %10s %14s\n", what, seconds, bytes);
}

static void print_network(const finding *f)
{
    const tri_cluster_found *found = &f->survey->found;
    char what[64];
    print_row("between two nodes, one pair", found->cross_latency_s, found->cross_pair_bytes_per_s);
    snprintf(what, sizeof what, "between two nodes, %u pairs together", found->devices_per_node);
    if (found->devices_per_node > 1)
        print_row(what, 0, found->cross_bytes_per_s);
    for (uint32_t d = 0; d < found->num_distances; d++) {
        snprintf(what, sizeof what, "a node, to that %u on, all at once", 1u << d);
        print_row(what, 0, found->distance_bytes_per_s[d]);
    }
    printf("\n%u card%s of %.4g GB/s in a node", f->spec.cards_per_node,
           f->spec.cards_per_node == 1 ? "" : "s", f->spec.card_bytes_per_s * 1e-9);
    if (f->spec.rack_nodes)
        printf(", racks of %u node%s, oversubscription %.3g", f->spec.rack_nodes,
               f->spec.rack_nodes == 1 ? "" : "s", f->spec.oversubscription);
    printf(" (derived)\n");
}

static void print_text(const finding *f)
{
    const tri_survey *s = f->survey;
    const tri_cluster_found *found = &s->found;
    tri_text_print(stdout, "%s: %u node%s of %u rank%s (%s)\n", s->hosts, found->nodes,
                   found->nodes == 1 ? "" : "s", found->devices_per_node,
                   found->devices_per_node == 1 ? "" : "s", s->device);
    printf("messages by %s%s, measured for %.1f s\n\n", s->transport,
           s->by_host ? " through the hosts" : "", s->seconds);
    printf("%-40s %10s %14s\n", "", "latency", "bandwidth");
    if (found->devices_per_node > 1) {
        print_row("within a node, one pair", found->latency_s, found->pair_bytes_per_s);
        print_row("within a node, each while all gather", 0, found->node_bytes_per_s);
    } else {
        print_row("copies in memory", 0, found->node_bytes_per_s);
    }
    if (found->nodes > 1)
        print_network(f);
    if (f->gpus_left)
        printf(
            "\nnote: the GPUs were left out; --set run.device=cuda --ranks N has them measured\n");
    tri_text_print(stdout, "\nwritten: %s; now: trireme sim FILE.yaml --cluster %s%s\n", f->path,
                   f->path, f->spec.device ? "" : " --device NAME");
}

static void put_known(json_t *doc, const char *key, double value)
{
    if (value > 0)
        tri_doc_number(doc, key, value);
    else
        tri_doc_null(doc, key);
}

static tr_status print_json(const finding *f, tr_error *err)
{
    const tri_survey *s = f->survey;
    const tri_cluster_found *found = &s->found;
    json_t *doc = tri_doc_begin();
    tri_doc_text(doc, "path", f->path);
    tri_doc_text(doc, "hosts", s->hosts);
    tri_doc_text(doc, "device_description", s->device);
    tri_doc_text(doc, "device", f->spec.device);
    tri_doc_text(doc, "transport", s->transport);
    tri_doc_flag(doc, "through_host", s->by_host);
    tri_doc_number(doc, "seconds", s->seconds);
    tri_doc_count(doc, "nodes", found->nodes);
    tri_doc_count(doc, "devices_per_node", found->devices_per_node);
    put_known(doc, "node_latency_seconds", found->latency_s);
    put_known(doc, "node_pair_bytes_per_s", found->pair_bytes_per_s);
    put_known(doc, "node_bytes_per_s", found->node_bytes_per_s);
    put_known(doc, "cross_latency_seconds", found->cross_latency_s);
    put_known(doc, "cross_pair_bytes_per_s", found->cross_pair_bytes_per_s);
    put_known(doc, "cross_bytes_per_s", found->cross_bytes_per_s);
    json_t *distances = tri_doc_list(doc, "distances");
    for (uint32_t d = 0; d < found->num_distances; d++) {
        json_t *item = tri_doc_item(distances);
        tri_doc_count(item, "nodes_on", 1 << d);
        tri_doc_number(item, "node_bytes_per_s", found->distance_bytes_per_s[d]);
    }
    tri_doc_count_from(doc, "cards_per_node", f->spec.cards_per_node, 1);
    put_known(doc, "card_bytes_per_s", f->spec.card_bytes_per_s);
    tri_doc_count_from(doc, "rack_nodes", f->spec.rack_nodes, 1);
    put_known(doc, "oversubscription", f->spec.oversubscription);
    return tri_doc_print(doc, stdout, err);
}

static tr_status tell(const void *context, const tri_cli *cli, void *result, int num_ranks,
                      int *code, tr_error *err)
{
    (void)num_ranks;
    finding f = {.path = context, .survey = result};
    const tri_device_spec *device = tri_device_spec_in(f.survey->device);
    const char *kind = tr_settings_string(cli->settings, "run.device");
    *code = TRI_EXIT_OK;
    tri_cluster_derive(&f.survey->found, &f.spec);
    f.spec.device = device ? device->name : NULL;
    f.gpus_left = strcmp(kind, "auto") == 0 && tri_device_gpu_driver();
    TRI_TRY(write_file(&f, err));
    if (tri_cli_flag(cli, "json"))
        return print_json(&f, err);
    print_text(&f);
    return TR_OK;
}

/* ---- measuring ---- */

static tr_status measure(const tri_cli *cli, tri_comm *comm, tri_device *device, void *result,
                         tr_error *err)
{
    const char *library = tr_settings_string(cli->settings, "run.nccl_library");
    const char *transport = tr_settings_string(cli->settings, "run.transport");
    tri_nccl_api api = {0};
    bool by_nccl = false, lanes = device->def->queue && device->def->queue->lanes;
    if (lanes && tr_comm_size(comm) > 1 && tri_ranks_may_use_nccl(transport, "auto"))
        TRI_TRY(tri_ranks_agree_on_nccl(comm, device, library, &api, &by_nccl, err));
    if (!by_nccl && strcmp(transport, "nccl") == 0)
        return tri_fail(err, TR_ERROR_INPUT,
                        "run.transport is nccl, but these ranks have not each a GPU of their own "
                        "and NCCL; leave it at auto, or see what trireme doctor finds");
    return tri_survey_take(comm, device, by_nccl ? &api : NULL, result, err);
}

int tri_doctor_cluster(const tri_cli *cli)
{
    const char *path = tri_cli_flag(cli, "cluster");
    const char *kind = tr_settings_string(cli->settings, "run.device");
    if (strcmp(tr_settings_string(cli->settings, "run.transport"), "nccl") == 0 &&
        strcmp(kind, "cuda") != 0) {
        tri_cli_error("run.transport is nccl, which joins GPUs, but run.device is %s; set "
                      "run.device=cuda, or leave run.transport at auto",
                      kind);
        return TRI_EXIT_USAGE;
    }
    const tri_doctor_job job = {.cli = cli,
                                .result_bytes = sizeof(tri_survey),
                                .context = path,
                                .check = check_path,
                                .measure = measure,
                                .tell = tell};
    return tri_doctor_run_ranks(&job);
}
