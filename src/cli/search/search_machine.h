/* Machines as the search of layouts sees them: one that was measured, or devices of the table. For
 * plan --search and for layout.auto. */
#ifndef TRI_CLI_SEARCH_SEARCH_MACHINE_H
#define TRI_CLI_SEARCH_SEARCH_MACHINE_H

#include "cli/sim/sim_machine.h"
#include "search/exact.h"

/* Both fill in all but memory_bytes, for so many ranks, and keep a pointer to what they are given.
 * On a host ranks share its cores. */
void tri_search_machine_measured(const tri_measured *profile, uint32_t devices,
                                 tri_search_machine *machine);
void tri_search_machine_modelled(tri_sim_machine *modelled, uint32_t devices,
                                 tri_search_machine *machine);

/* Of a device's memory, what the plan of a rank may take where nobody says. */
uint64_t tri_search_budget(double device_bytes);

#endif
