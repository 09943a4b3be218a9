#include "sim/picture/action_style.h"

const tri_action_style *tri_action_style_of(tri_action_kind kind)
{
    static const tri_action_style styles[TRI_NUM_ACTIONS] = {
        [TRI_ACTION_F] = {{"#9ec5f4", "#3b76c4"}, {"#10243e", "#ffffff"}, "F  forward"},
        [TRI_ACTION_I] = {{"#a9dfb8", "#2f8f57"}, {"#0e2e1a", "#ffffff"}, "I  input gradient"},
        [TRI_ACTION_W] = {{"#f8d38d", "#c77f1a"}, {"#3a2600", "#ffffff"}, "W  weight gradient"},
        [TRI_ACTION_B] = {{"#9adcd6", "#258a84"}, {"#08302d", "#ffffff"}, "B  backward, I and W"},
        [TRI_ACTION_U] = {{"#d9b8e8", "#8a4fb0"}, {"#2c0f3d", "#ffffff"}, "U  update"},
    };
    return &styles[kind];
}
