/* What run.device=auto stands for on this machine. */
#ifndef TRI_CLI_DEVICE_CHOICE_H
#define TRI_CLI_DEVICE_CHOICE_H

#include "comm/control/bootstrap.h"
#include "device/device.h"
#include "trireme/settings.h"

/* GPUs of this machine that ranks can use; 0: none. */
typedef struct tri_gpus {
    int count;
    char name[200]; /* of what kind they are, as the driver says; "" where nobody asked */
} tri_gpus;

/* Before any thread exists, as below: a child asks. */
tri_gpus tri_cli_find_gpus(bool named);
/* Ranks of this machine in a world that somebody else started; 1 when nobody tells. */
int tri_cli_ranks_beside(void);

/* Replaces run.device=auto in the settings by what it stands for with so many ranks; *choice says
 * why. Before any thread exists: GPUs are counted by a child, since a process that has used one
 * cannot be forked.
 */
tr_status tri_cli_choose_device(tr_settings *settings, int64_t num_ranks, tri_device_choice *choice,
                                tr_error *err);

/* Ranks with different devices have different programs: refused, once they can reach each other. */
tr_status tri_cli_agree_on_device(const tr_settings *settings, const tri_bootstrap *bootstrap,
                                  tr_error *err);

#endif
