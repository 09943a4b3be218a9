#include "train/health/mfu.h"

#include <stdio.h>

#include "base/text.h"
#include "mesh/device_names.h"

static tri_rate rate_of(const tri_session *s)
{
    if (s->config.compile.precision.compute != TRI_F32)
        return TRI_RATE_16;
    return s->config.device.tf32 ? TRI_RATE_TF32 : TRI_RATE_F32;
}

tri_mfu_base tri_mfu_base_of(const tri_session *session, double measured)
{
    tri_mfu_base base = {.flops = measured};
    char count[16];
    const tri_device_spec *spec = tri_device_spec_in(session->device.description);
    tri_rate rate = rate_of(session);
    if (spec && spec->dense[rate] > 0) {
        base.flops = spec->dense[rate];
        base.datasheet = true;
        snprintf(base.words, sizeof base.words,
                 "the %.4g TFLOP/s (%s, dense) of the datasheet of %.60s", base.flops * 1e-12,
                 tri_rate_name(rate), spec->title);
    } else if (measured > 0) {
        snprintf(base.words, sizeof base.words,
                 "the %sFLOP/s of a large product, measured before the first step",
                 tri_text_count(measured, count));
    }
    return base;
}
