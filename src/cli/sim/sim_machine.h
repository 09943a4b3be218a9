/* The machine that trireme sim FILE is about, from --device, --cluster, --link and --efficiency. */
#ifndef TRI_CLI_SIM_SIM_MACHINE_H
#define TRI_CLI_SIM_SIM_MACHINE_H

#include "cli/cli.h"
#include "sim/machine_costs.h"
#include "sim/roofline.h"
#include "sim/step_sim.h"

/* One of the two is in force: the device's profile, or shares of its datasheet (--efficiency). */
typedef struct tri_sim_machine {
    bool by_datasheet;
    bool by_cluster; /* one is named, and says how ranks are linked */
    tri_machine_model model;
    tri_device_model roofline;
    tri_device_spec own_device;
    tri_link_spec own_link;
    tri_rate rate;
    /* The same with 10 % more of a part. */
    struct {
        tri_machine_model model;
        tri_device_model roofline;
        tri_device_spec device;
        tri_link_spec link;
    } faster[TRI_NUM_FASTER];
} tri_sim_machine;

tr_status tri_sim_machine_read(const tri_cli *cli, uint32_t ranks, tri_sim_machine *machine,
                               tr_error *err);
/* Devices of the table on one machine, linked as is usual for them. */
tr_status tri_sim_machine_of(const tr_settings *settings, const tri_device_spec *device,
                             uint32_t ranks, tri_sim_machine *machine, tr_error *err);
const tri_device_spec *tri_sim_machine_device(const tri_sim_machine *machine);
/* Fills in costs and peak_flops. */
void tri_sim_machine_costs(tri_sim_machine *machine, tri_step_case *step);
/* "H100 SXM (fitted), dgx-h100: 32 nodes": what it is, and what its rates come from. */
void tri_sim_machine_title(const tri_sim_machine *machine, char *text, size_t size);
const char *tri_sim_machine_rates(const tri_sim_machine *machine); /* "fitted" */

#endif
