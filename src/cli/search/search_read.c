/* What trireme plan --search is asked: devices, what is fixed, what counts. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/api.h"
#include "cli/bench/bench_device.h"
#include "cli/quantity.h"
#include "cli/search/plan_search.h"
#include "cli/search/search_machine.h"
#include "config/settings_internal.h"
#include "device/device.h"
#include "model/model.h"
#include "sim/run_sums.h"

/* ---- how many devices ---- */

static tr_status bad_devices(const char *text, tr_error *err)
{
    return tri_fail(err, TR_ERROR_INPUT,
                    "--devices is \"%.40s\"; write a number, 64, or a range of numbers of which "
                    "powers of two are tried, 8..1024; at most %d",
                    text, TRI_MAX_RANKS);
}

static tr_status read_devices(tri_plan_search *p, tr_error *err)
{
    const char *text = tri_cli_flag(p->cli, "devices");
    if (!text)
        return TR_OK;
    char *end;
    long long least = strtoll(text, &end, 10), most = least;
    if (end != text && strncmp(end, "..", 2) == 0) {
        char *dots = end + 2;
        most = strtoll(dots, &end, 10);
        if (end == dots)
            return bad_devices(text, err);
    }
    if (end == text || *end || least < 1 || most < least || most > TRI_MAX_RANKS)
        return bad_devices(text, err);
    p->least_devices = (uint32_t)least;
    p->most_devices = (uint32_t)most;
    return TR_OK;
}

/* A cluster of so many nodes has so many devices. */
static tr_status devices_of_cluster(tri_plan_search *p, tr_error *err)
{
    const char *text = tri_cli_flag(p->cli, "cluster");
    if (p->most_devices > 0)
        return TR_OK;
    if (text && strpbrk(text, ":=./")) {
        tri_cluster cluster;
        TRI_TRY(tri_cluster_parse(text, 1, &cluster, err));
        p->least_devices = p->most_devices = cluster.nodes * cluster.devices_per_node;
        return TR_OK;
    }
    if (p->is_measured && strcmp(p->profile.kind, "cpu") == 0) {
        p->least_devices = p->most_devices = (uint32_t)p->profile.cores;
        return TR_OK;
    }
    return tri_fail(err, TR_ERROR_INPUT,
                    "how many devices? add --devices 8, or a cluster with its nodes: --cluster "
                    "dgx-h100:4");
}

/* ---- the machine ---- */

static tr_status read_profile(tri_plan_search *p, tr_error *err)
{
    const char *path = tri_cli_flag(p->cli, "profile");
    const double brief = 20;
    if (!path)
        return TR_OK;
    for (int i = 0; i < 2; i++) {
        const char *other = i == 0 ? "cluster" : "device";
        if (tri_cli_flag(p->cli, other))
            return tri_fail(err, TR_ERROR_INPUT,
                            "--profile says what was measured on a device, so --%s changes "
                            "nothing; leave one of them out",
                            other);
    }
    p->is_measured = true;
    return strcmp(path, "here") == 0
               ? tri_device_bench_run(p->cli, brief, tri_cli_flag(p->cli, "json") != NULL,
                                      &p->profile, err)
               : tri_measured_read(path, &p->profile, err);
}

static void describe_measured(tri_plan_search *p, uint32_t devices)
{
    tri_search_machine_measured(&p->profile, devices, &p->of.machine);
    p->device_bytes = p->profile.memory_bytes / (p->of.machine.host ? devices : 1);
}

static tr_status wire_of(tri_plan_search *p, tr_error *err)
{
    const char *name = tri_cli_flag(p->cli, "link");
    const tri_link_spec *link;
    p->machine.own_link = (tri_link_spec){.name = "memory", .title = "memory", .bytes_per_s = 1};
    link = &p->machine.own_link;
    if (name)
        TRI_TRY(tri_quantity_link(name, &p->machine.own_link, &link, err));
    if (!name && p->profile.num_messages == 0 && p->most_devices > 1)
        return tri_fail(err, TR_ERROR_INPUT,
                        "the profile was measured on one device, without messages; name what "
                        "connects the ranks: --link nvlink4, say");
    p->machine.own_device = (tri_device_spec){.name = "measured",
                                              .title = p->profile.device,
                                              .memory_bytes = p->profile.memory_bytes,
                                              .memory_bytes_per_s = p->profile.memory_bytes_per_s};
    p->machine.roofline = (tri_device_model){
        .device = &p->machine.own_device, .link = link, .rate = TRI_RATE_F32, .efficiency = 1};
    p->of.machine.wire = tri_roofline_costs(&p->machine.roofline);
    return TR_OK;
}

static tr_status describe_machine(tri_plan_search *p, uint32_t devices, tr_error *err)
{
    TRI_TRY(tri_sim_machine_read(p->cli, devices, &p->machine, err));
    tri_search_machine_modelled(&p->machine, devices, &p->of.machine);
    p->device_bytes = tri_sim_machine_device(&p->machine)->memory_bytes;
    p->watts =
        p->watts > 0 ? p->watts : tri_device_watts(tri_sim_machine_device(&p->machine)->name, NULL);
    return TR_OK;
}

/* What a rank may take: --budget, run.memory_limit, or nearly all of the device. */
static tr_status read_budget(tri_plan_search *p, tr_error *err)
{
    const char *text = tri_cli_flag(p->cli, "budget");
    double bytes = (double)tri_search_budget(p->device_bytes);
    uint64_t limit = 0;
    if (text)
        TRI_TRY(tri_quantity_bytes("budget", text, &bytes, err));
    else
        TRI_TRY(tri_memory_limit_from(p->cli->settings, &limit, err));
    p->of.machine.memory_bytes = limit > 0 ? limit : (uint64_t)bytes;
    return TR_OK;
}

tr_status tri_plan_search_size(tri_plan_search *p, uint32_t devices, tr_error *err)
{
    if (p->is_measured) {
        describe_measured(p, devices);
        TRI_TRY(wire_of(p, err));
    } else {
        TRI_TRY(describe_machine(p, devices, err));
    }
    p->of.machine.fit_bytes = p->fit_bytes;
    return read_budget(p, err);
}

/* ---- what is not said ---- */

static tr_status assume(tri_plan_search *p, const char *name, const char *value, tr_error *err)
{
    if (tr_settings_given(p->cli->settings, name))
        return TR_OK;
    snprintf(p->assumed[p->num_assumed], sizeof p->assumed[0], "%s=%s", name, value);
    return tr_settings_set(p->cli->settings, p->assumed[p->num_assumed++], err);
}

/* A preset without a recipe says nothing of how it is trained, and the defaults of settings are
 * those of a first try on a laptop. So what is usual at such a size is taken, and said. */
static tr_status assume_usual(tri_plan_search *p, tr_error *err)
{
    const double million = 1048576, large = 1e9; /* parameters */
    const tri_preset *preset =
        tri_preset_find(tr_settings_string(p->cli->settings, "model.preset"));
    char text[24];
    if (p->cli->file || !preset || p->is_measured)
        return TR_OK;
    int64_t longest = preset->positions > 0 && preset->positions < 8192 ? preset->positions : 8192;
    TRI_TRY(assume(p, "precision.kind", "bf16", err));
    snprintf(text, sizeof text, "%lld", (long long)longest);
    TRI_TRY(assume(p, "data.seq_len", text, err));
    double params = 12.0 * (double)preset->num_layers * (double)preset->dim * (double)preset->dim;
    double tokens = params < large ? million / 2 : 4 * million;
    double rows = tokens / (double)tr_settings_int(p->cli->settings, "data.seq_len");
    rows = rows > p->most_devices ? rows : p->most_devices;
    snprintf(text, sizeof text, "%.0f", rows);
    return assume(p, "train.batch", text, err);
}

/* ---- what is fixed ---- */

/* A value that the search does not try. */
static tr_status not_tried(const char *value, tr_error *err)
{
    const char *hint = "leave --fix out, or plan that layout alone: trireme sim";
    if (strncmp(value, "layout.schedule=", 16) == 0)
        hint = "it knows 1f1b, interleaved, zb-h1, 1f1b-v, zb-v, v-half, v-min and gpipe";
    if (strncmp(value, "layout.recompute=", 17) == 0)
        hint = "it knows none, selective, full, every:2, every:4 and budget:BYTES";
    if (strncmp(value, "layout.etp=", 11) == 0)
        hint = "it knows 0 and 1";
    if (strncmp(value, "layout.sp=", 10) == 0 || strncmp(value, "layout.keep_gathered=", 21) == 0)
        hint = "write true or false";
    return tri_fail(err, TR_ERROR_INPUT, "--fix %.60s: the search does not try this value; %s",
                    value, hint);
}

static tr_status read_fixed(tri_plan_search *p, tr_error *err)
{
    static const char *const budget = "layout.recompute=budget:";
    const tri_layout_choice any = {.prefetch = 1};
    p->of.fixed = tri_space_all_free();
    for (int i = 0; i < p->cli->num_flags; i++) {
        const char *value = p->cli->flags[i].value;
        if (strcmp(p->cli->flags[i].flag->name, "fix") != 0)
            continue;
        TRI_TRY(tr_settings_set(p->settings, value, err)); /* says what is wrong with it */
        bool layout = strncmp(value, "layout.", 7) == 0;
        bool varied = tri_choice_compare(&any, 0, value) != TRI_CHOICE_ELSE;
        if (layout && !tri_space_fix(&p->of.fixed, value) && varied)
            return not_tried(value, err);
        if (strncmp(value, budget, strlen(budget)) == 0) {
            double bytes;
            TRI_TRY(tri_quantity_bytes("fix", value + strlen(budget), &bytes, err));
            p->fit_bytes = (uint64_t)bytes;
        }
    }
    return TR_OK;
}

static tr_status read_objective(tri_plan_search *p, tr_error *err)
{
    static const char *const words[] = {"time", "memory", "energy", "money"};
    const char *text = tri_cli_flag(p->cli, "objective");
    for (int i = 0; text && i < 4; i++)
        if (strcmp(text, words[i]) == 0) {
            p->objective = (tri_objective)i;
            return TR_OK;
        }
    return text ? tri_fail(err, TR_ERROR_INPUT,
                           "--objective is \"%.30s\"; it is time, memory, energy or money", text)
                : TR_OK;
}

static tr_status read_run(tri_plan_search *p, tr_error *err)
{
    const tri_cli *cli = p->cli;
    if (tri_cli_flag(cli, "tokens"))
        TRI_TRY(tri_quantity_count("tokens", tri_cli_flag(cli, "tokens"), &p->tokens, err));
    const struct {
        const char *name;
        double *value, least;
    } numbers[] = {
        {"days", &p->days, 1e-6}, {"price", &p->price, 1e-9}, {"watts", &p->watts, 1e-3}};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (tri_cli_flag(cli, numbers[i].name))
            TRI_TRY(tri_quantity_number(numbers[i].name, tri_cli_flag(cli, numbers[i].name),
                                        numbers[i].least, 1e9, numbers[i].value, err));
    if (p->days > 0 && p->tokens <= 0)
        return tri_fail(err, TR_ERROR_INPUT,
                        "--days asks for a size that trains in so many days; add how many tokens: "
                        "--tokens 300e9");
    bool by_devices = p->objective == TRI_OBJECTIVE_ENERGY || p->objective == TRI_OBJECTIVE_MONEY;
    const char *devices = tri_cli_flag(cli, "devices");
    if (by_devices && !(devices && strstr(devices, "..")))
        return tri_fail(err, TR_ERROR_INPUT,
                        "energy and money go with devices x time, so on a given number of them the "
                        "fastest is the best; leave --objective out, or give a range: --devices "
                        "8..1024");
    if (p->objective == TRI_OBJECTIVE_MONEY && p->price <= 0)
        return tri_fail(err, TR_ERROR_INPUT,
                        "--objective money needs what a device costs in an hour; add --price 2.5");
    return TR_OK;
}

static tr_status read_counts(tri_plan_search *p, tr_error *err)
{
    int64_t best = 10, exact = 400;
    TRI_TRY(tri_cli_flag_int(p->cli, "top", 1, 100, &best, err));
    TRI_TRY(tri_cli_flag_int(p->cli, "exact", 16, 1000000, &exact, err));
    p->of.num_best = (uint32_t)best;
    p->of.most_exact = (uint32_t)exact;
    p->of.threads = tri_device_num_cores();
    p->of.settings = p->settings;
    p->of.least_memory = p->objective == TRI_OBJECTIVE_MEMORY;
    p->of.linear8_too = tri_cli_flag(p->cli, "fp8-too") != NULL;
    return TR_OK;
}

tr_status tri_plan_search_read(tri_plan_search *p, tr_error *err)
{
    TRI_TRY(read_objective(p, err));
    TRI_TRY(read_run(p, err));
    TRI_TRY(read_devices(p, err));
    TRI_TRY(read_profile(p, err));
    TRI_TRY(devices_of_cluster(p, err));
    TRI_TRY(assume_usual(p, err));
    TRI_TRY(tri_settings_clone(p->cli->settings, &p->settings, err));
    TRI_TRY(read_fixed(p, err));
    TRI_TRY(read_counts(p, err));
    return tri_plan_search_size(p, p->most_devices, err);
}

void tri_plan_search_fini(tri_plan_search *p)
{
    tri_search_fini(&p->found);
    tri_measured_fini(&p->profile);
    tr_settings_destroy(p->settings);
}
