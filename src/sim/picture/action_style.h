/* How actions look in pictures. */
#ifndef TRI_SIM_PICTURE_ACTION_STYLE_H
#define TRI_SIM_PICTURE_ACTION_STYLE_H

#include "schedule/action.h"

/* Fill of the first and of the further chunks of a rank, and the colour of the number on it. */
typedef struct tri_action_style {
    const char *fill[2], *ink[2], *meaning;
} tri_action_style;

const tri_action_style *tri_action_style_of(tri_action_kind kind); /* of those that compute */

#endif
