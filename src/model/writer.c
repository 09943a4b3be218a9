#include "model/writer.h"

#include <stdarg.h>

void tri_writer_enter(tri_param_writer *w, int layer, const char *scope_format, ...)
{
    va_list args;
    va_start(args, scope_format);
    w->scope = tri_arena_vprintf(&w->table->arena, scope_format, args);
    va_end(args);
    w->layer = layer;
}

void tri_write_param(const tri_param_writer *w, const char *name, const char *suffix,
                     tri_param param)
{
    param.name = tri_arena_printf(&w->table->arena, "%s%s%s", w->scope, name, suffix);
    param.layer = w->layer;
    tri_param_add(w->table, param);
}

void tri_write_linear(const tri_param_writer *w, const char *name, tri_shape out, tri_shape in,
                      tri_init weight, const tri_init *bias)
{
    tri_shape both = out;
    for (int i = 0; i < in.rank; i++)
        both.dim[both.rank++] = in.dim[i];
    uint8_t split = (uint8_t)out.rank;
    tri_write_param(
        w, name, ".weight",
        (tri_param){.shape = both, .split = split, .init = weight, .role = TRI_ROLE_MATRIX});
    if (bias)
        tri_write_param(
            w, name, ".bias",
            (tri_param){.shape = out, .split = split, .init = *bias, .role = TRI_ROLE_BIAS});
}

void tri_write_norm(const tri_param_writer *w, const char *name, tri_dim dim, bool shift)
{
    tri_param param = {.shape = {.rank = 1, .dim = {dim}}, .split = 1, .role = TRI_ROLE_NORM};
    param.init.kind = TRI_INIT_ONE;
    tri_write_param(w, name, ".weight", param);
    param.init.kind = TRI_INIT_ZERO;
    if (shift)
        tri_write_param(w, name, ".bias", param);
}

void tri_write_embedding(const tri_param_writer *w, const char *name, tri_dim rows, tri_dim width,
                         float std)
{
    tri_write_param(w, name, ".weight",
                    (tri_param){.shape = {.rank = 2, .dim = {rows, width}},
                                .split = 1,
                                .init = {TRI_INIT_NORMAL, std},
                                .role = TRI_ROLE_EMBEDDING});
}

void tri_write_router(const tri_param_writer *w, const char *name, tri_dim experts, tri_dim width,
                      float std, bool steered)
{
    tri_write_param(w, name, ".weight",
                    (tri_param){.shape = {.rank = 2, .dim = {experts, width}},
                                .split = 1,
                                .init = {TRI_INIT_NORMAL, std},
                                .role = TRI_ROLE_ROUTER});
    if (steered)
        tri_write_param(w, name, ".e_score_correction_bias",
                        (tri_param){.shape = {.rank = 1, .dim = {experts}},
                                    .split = 1,
                                    .init = {TRI_INIT_ZERO, 0},
                                    .role = TRI_ROLE_STEERED});
}

void tri_write_experts(const tri_param_writer *w, const char *name, tri_dim experts, tri_dim out,
                       tri_dim in, tri_init init)
{
    tri_write_param(w, name, ".weight",
                    (tri_param){.shape = {.rank = 3, .dim = {experts, out, in}},
                                .split = 2,
                                .init = init,
                                .role = TRI_ROLE_EXPERTS});
}

void tri_write_bias(const tri_param_writer *w, const char *name, tri_shape shape)
{
    tri_write_param(w, name, "",
                    (tri_param){.shape = shape,
                                .split = (uint8_t)shape.rank,
                                .init = {TRI_INIT_ZERO, 0},
                                .role = TRI_ROLE_BIAS});
}
