#include "cli/sim/sim_machine.h"

#include <stdio.h>
#include <string.h>

#include "cli/quantity.h"

static tri_rate rate_of(const tr_settings *settings)
{
    const char *precision = tr_settings_string(settings, "precision.kind");
    return strcmp(precision, "tf32") == 0   ? TRI_RATE_TF32
           : strcmp(precision, "fp32") == 0 ? TRI_RATE_F32
                                            : TRI_RATE_16;
}

static tr_status check_rates(const tr_settings *settings, const tri_device_spec *device,
                             tri_rate rate, tr_error *err)
{
    bool linear8 = strcmp(tr_settings_string(settings, "precision.linear"), "fp8") == 0;
    if (device->dense[rate] <= 0)
        return tri_fail(err, TR_ERROR_INPUT,
                        "the table has no %s rate of %s; set another precision.kind",
                        tri_rate_name(rate), device->title);
    if (linear8 && device->dense[TRI_RATE_FP8] <= 0)
        return tri_fail(err, TR_ERROR_INPUT,
                        "the table has no %s rate of %s; set precision.linear=same, or take a "
                        "device that has one, such as h100",
                        tri_rate_name(TRI_RATE_FP8), device->title);
    return TR_OK;
}

/* The cluster's own device is meant where none is named. */
static tr_status read_device(const tri_cli *cli, const tri_cluster *cluster, tri_sim_machine *m,
                             const tri_device_spec **device, tr_error *err)
{
    const char *name = tri_cli_flag(cli, "device");
    name = name ? name : cluster->device;
    if (!name && !*cluster->name)
        return tri_fail(
            err, TR_ERROR_INPUT,
            "what devices? add --device h100, say, or a cluster that has some: --cluster "
            "dgx-h100:4 (`trireme place --devices` lists both)");
    if (!name)
        return tri_fail(err, TR_ERROR_INPUT,
                        "cluster %s does not say what devices its nodes have; add --device h100, "
                        "say",
                        cluster->name);
    TRI_TRY(tri_quantity_device(name, &m->own_device, device, err));
    return check_rates(cli->settings, *device, m->rate, err);
}

tr_status tri_sim_machine_read(const tri_cli *cli, uint32_t ranks, tri_sim_machine *m,
                               tr_error *err)
{
    const char *share = tri_cli_flag(cli, "efficiency"), *link = tri_cli_flag(cli, "link");
    const char *cluster_text = tri_cli_flag(cli, "cluster");
    const tri_device_spec *device;
    const tri_link_spec *spec;
    tri_cluster cluster = {0};
    *m = (tri_sim_machine){.by_datasheet = share != NULL,
                           .by_cluster = cluster_text != NULL,
                           .rate = rate_of(cli->settings)};
    if (cluster_text && (link || share))
        return tri_fail(err, TR_ERROR_INPUT,
                        "--cluster says how ranks are linked, and devices of it have a profile; "
                        "leave --%s out",
                        link ? "link" : "efficiency");
    if (cluster_text)
        TRI_TRY(tri_cluster_parse(cluster_text, ranks, &cluster, err));
    TRI_TRY(read_device(cli, &cluster, m, &device, err));
    TRI_TRY(tri_quantity_link(link ? link : device->link, &m->own_link, &spec, err));
    if (!cluster_text)
        cluster = tri_cluster_of_link(spec, ranks);
    m->model = tri_machine_model_of(device, &cluster, m->rate);
    m->roofline = (tri_device_model){.device = device, .link = spec, .rate = m->rate};
    return share ? tri_quantity_share("efficiency", share, &m->roofline.efficiency, err) : TR_OK;
}

tr_status tri_sim_machine_of(const tr_settings *settings, const tri_device_spec *device,
                             uint32_t ranks, tri_sim_machine *m, tr_error *err)
{
    const tri_link_spec *link = tri_link_spec_find(device->link);
    *m = (tri_sim_machine){.rate = rate_of(settings)};
    TRI_TRY(check_rates(settings, device, m->rate, err));
    tri_cluster cluster = tri_cluster_of_link(link, ranks);
    m->model = tri_machine_model_of(device, &cluster, m->rate);
    m->roofline = (tri_device_model){.device = device, .link = link, .rate = m->rate};
    return TR_OK;
}

const tri_device_spec *tri_sim_machine_device(const tri_sim_machine *m)
{
    return m->roofline.device;
}

static void make_faster(tri_sim_machine *m, tri_faster part)
{
    double products = part == TRI_FASTER_PRODUCTS ? 1.1 : 1;
    double memory = part == TRI_FASTER_MEMORY ? 1.1 : 1, links = part == TRI_FASTER_LINKS ? 1.1 : 1;
    m->faster[part].model = m->model;
    m->faster[part].roofline = m->roofline;
    m->faster[part].device = *m->roofline.device;
    m->faster[part].link = *m->roofline.link;
    tri_device_spec *specs[] = {&m->faster[part].device, &m->faster[part].model.profile.device};
    for (int i = 0; i < 2; i++) {
        for (int r = 0; r < TRI_NUM_RATES; r++)
            specs[i]->dense[r] *= products;
        specs[i]->memory_bytes_per_s *= memory;
    }
    m->faster[part].link.bytes_per_s *= links;
    for (uint32_t t = 0; t < m->model.cluster.num_tiers; t++)
        m->faster[part].model.cluster.tier[t].bytes_per_s *= links;
    m->faster[part].roofline.device = &m->faster[part].device;
    m->faster[part].roofline.link = &m->faster[part].link;
}

void tri_sim_machine_costs(tri_sim_machine *m, tri_step_case *step)
{
    step->costs = m->by_datasheet ? tri_roofline_costs(&m->roofline) : tri_machine_costs(&m->model);
    for (int p = 0; p < TRI_NUM_FASTER; p++) {
        make_faster(m, (tri_faster)p);
        step->faster[p] = m->by_datasheet ? tri_roofline_costs(&m->faster[p].roofline)
                                          : tri_machine_costs(&m->faster[p].model);
    }
    step->peak_flops = m->roofline.device->dense[m->rate];
}

const char *tri_sim_machine_rates(const tri_sim_machine *m)
{
    return m->by_datasheet ? "datasheet" : tri_profile_kind_name(m->model.profile.kind);
}

void tri_sim_machine_title(const tri_sim_machine *m, char *text, size_t size)
{
    const tri_cluster *cluster = &m->model.cluster;
    int used = snprintf(text, size, "%.60s", m->roofline.device->title);
    if (m->by_datasheet)
        used += snprintf(text + used, size - (size_t)used, ", %.0f %% of its datasheet, %.60s",
                         100 * m->roofline.efficiency, m->roofline.link->title);
    else if (m->by_cluster)
        used += snprintf(text + used, size - (size_t)used, " (%s), %s: %u node%s of %u",
                         tri_sim_machine_rates(m), cluster->name, cluster->nodes,
                         cluster->nodes == 1 ? "" : "s", cluster->devices_per_node);
    else
        used += snprintf(text + used, size - (size_t)used, " (%s), %.60s", tri_sim_machine_rates(m),
                         m->roofline.link->title);
}
