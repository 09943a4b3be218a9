#include "schedule/action.h"

#include <stdio.h>

static const char *const names[TRI_NUM_ALL_ACTIONS] = {
    [TRI_ACTION_F] = "F",           [TRI_ACTION_I] = "I",           [TRI_ACTION_W] = "W",
    [TRI_ACTION_B] = "B",           [TRI_ACTION_U] = "U",           [TRI_ACTION_SEND_F] = "SEND_F",
    [TRI_ACTION_RECV_F] = "RECV_F", [TRI_ACTION_SEND_B] = "SEND_B", [TRI_ACTION_RECV_B] = "RECV_B",
};

const char *tri_action_name(tri_action_kind kind)
{
    return names[kind];
}

char *tri_action_text(const tri_action *action, char out[48])
{
    snprintf(out, 48, "%u%s%u", action->chunk, names[action->kind], action->microbatch);
    return out;
}
