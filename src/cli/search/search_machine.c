#include "cli/search/search_machine.h"

#include <string.h>

void tri_search_machine_measured(const tri_measured *profile, uint32_t devices,
                                 tri_search_machine *m)
{
    double mean, worst;
    bool host = strcmp(profile->kind, "cpu") == 0;
    *m = (tri_search_machine){.devices = devices,
                              .node = devices,
                              .measured = profile,
                              .host = host,
                              .cores = profile->cores,
                              .peak_flops = profile->dense[host ? TRI_RATE_F32 : TRI_RATE_16] /
                                            (host && devices > 0 ? devices : 1)};
    tri_measured_residual(&profile->tables[0], &mean, &worst);
    m->error = mean > 0.01 ? mean : 0.01;
}

/* Usual errors of predicted steps: docs/records/published.md, of profiles that were fitted. */
static double error_of(const tri_sim_machine *machine)
{
    if (machine->by_datasheet)
        return 0.25;
    return machine->model.profile.kind == TRI_PROFILE_DATASHEET ? 0.15 : 0.05;
}

void tri_search_machine_modelled(tri_sim_machine *modelled, uint32_t devices, tri_search_machine *m)
{
    tri_step_case costs = {0};
    tri_sim_machine_costs(modelled, &costs);
    uint32_t node = modelled->model.cluster.tier[0].devices;
    *m = (tri_search_machine){.devices = devices,
                              .node = node > 0 && node < devices ? node : devices,
                              .costs = costs.costs,
                              .peak_flops = costs.peak_flops,
                              .cluster = modelled->by_datasheet ? NULL : &modelled->model.cluster,
                              .terms = modelled->model.terms,
                              .error = error_of(modelled)};
}

uint64_t tri_search_budget(double device_bytes)
{
    const double share = 0.985; /* the rest is for its libraries: context and workspaces */
    return (uint64_t)(share * device_bytes);
}
