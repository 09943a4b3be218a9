/* Adam with moments of 8 bits, block by block. */
#include "device/adam8.h"
#include "device/cpu/ref/ref.h"

#include <string.h>

#include "graph/code.h"

static void encode(bool is_signed, const float *x, int64_t count, uint32_t key, uint8_t *block)
{
    uint32_t most = 0;
    for (int64_t i = 0; i < count; i++)
        if ((tri_bits_of(x[i]) & 0x7fffffffu) > most)
            most = tri_bits_of(x[i]) & 0x7fffffffu;
    float scale = tri_block8_scale(most);
    for (int64_t i = 0; i < count; i++)
        block[i] = tri_block8_code(is_signed, x[i], scale, tri_block8_random(x[i], key));
    memcpy(block + TRI_BLOCK8, &scale, sizeof scale);
}

static void adam8(const tri_kernel_args *args)
{
    const float *g = args->in[3].data, *sched = args->in[4].data, *result = args->in[5].data;
    float *p = args->out[0].data, m[TRI_BLOCK8], v[TRI_BLOCK8];
    uint8_t *m8 = args->out[1].data, *v8 = args->out[2].data;
    const tri_adam8 k = tri_adam8_of(&args->attr->update, sched, result);
    if (result[TRI_RESULT_OK] == 0)
        return;
    for (int64_t left = args->out[0].count; left > 0; left -= TRI_BLOCK8) {
        int64_t count = left < TRI_BLOCK8 ? left : TRI_BLOCK8;
        tri_dtype_code(TRI_Q8S)->decode(m8, count, m);
        tri_dtype_code(TRI_Q8U)->decode(v8, count, v);
        for (int64_t i = 0; i < count; i++)
            tri_adam8_update(&k, g[i], &p[i], &m[i], &v[i]);
        encode(true, m, count, k.key_m, m8);
        encode(false, v, count, k.key_v, v8);
        g += TRI_BLOCK8;
        p += TRI_BLOCK8;
        m8 += TRI_BLOCK8_BYTES;
        v8 += TRI_BLOCK8_BYTES;
    }
}

const tri_kernel tri_ref_adam8 = {.run = adam8};
