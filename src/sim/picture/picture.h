/* Pictures of a simulated step (step_sim.h), SVG: when each stage does what, what is in its memory,
 * how far its operators are from the device's limits, and what the ranks are at along the step. */
#ifndef TRI_SIM_PICTURE_PICTURE_H
#define TRI_SIM_PICTURE_PICTURE_H

#include "base/text.h"
#include "mesh/devices.h"
#include "sim/step_sim.h"

/* What they begin with, so that one of ours is known again. */
#define TRI_PICTURE_MARK "<!-- drawn by trireme sim -->"

typedef enum tri_picture_kind {
    TRI_PICTURE_TIMELINE,
    TRI_PICTURE_MEMORY,
    TRI_PICTURE_ROOFLINE,
    TRI_PICTURE_UTILISATION,
    TRI_NUM_PICTURES
} tri_picture_kind;

const char *tri_picture_name(tri_picture_kind kind); /* "timeline" */

typedef struct tri_picture_case {
    const tri_step_case *step;
    const tri_step_sim *sim; /* of the step */
    const char *title;
    const tri_device_spec *device;
    tri_rate rate;  /* of its products, but for those of 8-bit operands */
    double share;   /* of the datasheet that is taken to be reached; 0: costs say more than that */
    bool with_host; /* planned_bytes count what rests on the host, too */
} tri_picture_case;

/* Draws those that are wanted, each into its text, which has been begun. */
tr_status tri_pictures_draw(const tri_picture_case *c, const bool wanted[TRI_NUM_PICTURES],
                            tri_text text[TRI_NUM_PICTURES], tr_error *err);

#endif
