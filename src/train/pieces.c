#include "train/pieces.h"

#include <stdlib.h>
#include <string.h>

#include "base/half.h"
#include "graph/code.h"

/* A piece is shared out in parts of no less than this many elements. */
enum { SMALLEST_SHARE = 4096 };

tri_region tri_piece_region(const tri_grid *grid, const tri_shape *whole, const tri_value *value)
{
    int64_t dim[TRI_MAX_RANK];
    for (int d = 0; d < whole->rank; d++)
        dim[d] = whole->dim[d].size;
    tri_region region = tri_region_whole(whole->rank, dim);
    for (int d = 0; d < whole->rank; d++)
        region.size[d] =
            tri_placement_piece(grid, &value->at.dim[d], whole->dim[d], NULL, &region.begin[d]);
    region.count = tri_region_box_count(&region);
    if (value->flat.parts > 0)
        region.count = tri_flat_slice(&value->flat, value->flat.part, &region.first);
    return region;
}

/* Counts this rank among those that hold the same: they differ along factors that do not cut it,
 * the fastest first. Ranks of a pipeline hold other parameters; see writes_here. */
static void count_copies(tri_piece *piece, const tri_grid *grid, const tri_value *value,
                         tri_param_role role)
{
    bool experts = role == TRI_ROLE_EXPERTS && grid->axis[TRI_AXIS_EP].factors;
    tri_factor_set apart = tri_placement_cut(&value->at) | grid->axis[TRI_AXIS_PP].factors;
    if (value->flat.parts > 0)
        apart |= grid->axis[experts ? TRI_AXIS_EP_SHARD : TRI_AXIS_SHARD].factors;
    piece->copies = 1;
    for (int f = 0; f < grid->num_factors; f++) {
        if (apart >> f & 1)
            continue;
        piece->copy += grid->factor[f].coordinate * piece->copies;
        piece->copies *= grid->factor[f].size;
    }
}

/* Of the stages of a pipeline that hold a parameter, the first and the last take turns:
 * with pairs of parameters, since a weight and its bias stand together. */
static bool writes_here(const tri_session *session, tri_id param)
{
    const tri_program *program = &session->programs[TRI_PROGRAM_TRAIN];
    const tri_compile_config *config = &session->config.compile;
    if (!program->first_home || !program->last_home)
        return true;
    int writer = (int)(param / 2 % 2 ? program->last_home[param] : program->first_home[param]);
    return writer == tri_mesh_coordinate(&config->mesh, config->rank, TRI_AXIS_PP);
}

tr_status tri_pieces_list(const tri_session *session, tri_pieces *pieces, tr_error *err)
{
    const tri_program *program = &session->programs[TRI_PROGRAM_TRAIN];
    *pieces = (tri_pieces){.piece = calloc(program->num_states + 1, sizeof *pieces->piece)};
    if (!pieces->piece)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory to list the state");
    for (size_t s = 0; s < program->num_states; s++) {
        const tri_state *state = &program->states[s];
        bool counts = state->kind == TRI_STATE_PARAM || state->kind == TRI_STATE_COPY ||
                      state->kind == TRI_STATE_OPTIM;
        if (!counts || state->param == TRI_NONE)
            continue;
        const tri_value *value = &program->values[state->latest];
        const tri_param *param = &session->params.items[state->param];
        bool moment = state->kind == TRI_STATE_OPTIM, copy = state->kind == TRI_STATE_COPY;
        bool coded = moment && tri_dtype_code(state->dtype);
        if (copy ? state->dtype != TRI_BF16 && state->dtype != TRI_F16
                 : state->dtype != TRI_F32 && !coded) {
            tri_pieces_free(pieces);
            return tri_fail(err, TR_ERROR_INTERNAL, "%s is %s, which checkpoints do not know",
                            state->name, tri_dtype_name(state->dtype));
        }
        tri_piece *piece = &pieces->piece[pieces->num++];
        *piece = (tri_piece){.name = moment ? state->name : param->name,
                             .kind = moment ? TRI_CKPT_MOMENT : TRI_CKPT_WEIGHT,
                             .dtype = state->dtype,
                             .value = state->latest,
                             .region = tri_piece_region(&program->grid, &param->shape, value),
                             .turn = (int64_t)state->param + moment};
        count_copies(piece, &program->grid, value, param->role);
        piece->elsewhere = copy || !writes_here(session, state->param);
    }
    return TR_OK;
}

void tri_pieces_free(tri_pieces *pieces)
{
    free(pieces->piece);
    *pieces = (tri_pieces){0};
}

tri_region tri_piece_share(const tri_piece *piece)
{
    tri_region share = piece->region;
    int64_t count = share.count, each = (count + piece->copies - 1) / piece->copies;
    if (piece->elsewhere)
        share.count = 0;
    if (each < SMALLEST_SHARE)
        each = SMALLEST_SHARE;
    int64_t turn = (piece->copy + piece->turn) % piece->copies;
    int64_t begin = each * turn < count ? each * turn : count;
    int64_t end = begin + each < count ? begin + each : count;
    if (share.count > 0) {
        share.first += begin;
        share.count = end - begin;
    }
    return share;
}

void *tri_piece_memory(const tri_session *session, const tri_piece *piece, int64_t first)
{
    char *memory = tri_executor_memory(&session->executors[TRI_PROGRAM_TRAIN], piece->value, 0);
    return memory ? memory + tri_dtype_size(piece->dtype, first) : NULL;
}

tri_where tri_piece_where(const tri_session *session, const tri_piece *piece)
{
    return session->programs[TRI_PROGRAM_TRAIN].values[piece->value].where;
}

const void *tri_piece_on_host(const tri_session *session, const tri_piece *piece, int64_t first)
{
    bool away = session->device.def->queue && tri_piece_where(session, piece) == TRI_WHERE_DEVICE;
    return away ? NULL : tri_piece_memory(session, piece, first);
}

/* Blocks of a code on their way between a device and the host. */
enum { BLOCKS_AT_ONCE = 256 };

/* What is asked for may begin and end within a block. */
static tr_status read_code(const tri_session *session, const tri_piece *piece, int64_t first,
                           int64_t count, float *to, tr_error *err)
{
    const tri_executor *executor = &session->executors[TRI_PROGRAM_TRAIN];
    const tri_code *code = tri_dtype_code(piece->dtype);
    char *room = malloc(BLOCKS_AT_ONCE * code->block_bytes);
    float *block = malloc((size_t)code->block * sizeof *block);
    tr_status status =
        room && block ? TR_OK : tri_fail(err, TR_ERROR_RUNTIME, "no memory to decode");
    int64_t end = first + count;
    while (status == TR_OK && first < end) {
        int64_t at = first / code->block * code->block;
        int64_t blocks = (end - at + code->block - 1) / code->block;
        blocks = blocks < BLOCKS_AT_ONCE ? blocks : BLOCKS_AT_ONCE;
        status = tri_executor_read_part(executor, piece->value, tri_dtype_size(piece->dtype, at),
                                        (size_t)blocks * code->block_bytes, room, err);
        for (int64_t b = 0; status == TR_OK && b < blocks; b++, at += code->block) {
            int64_t stop = at + code->block < end ? at + code->block : end;
            code->decode(room + (size_t)b * code->block_bytes, code->block, block);
            memcpy(to, block + (first - at), (size_t)(stop - first) * sizeof *to);
            to += stop - first;
            first = stop;
        }
    }
    free(room);
    free(block);
    return status;
}

/* Begins with a block, and ends with one or with the piece. */
static tr_status write_code(const tri_session *session, const tri_piece *piece, int64_t first,
                            int64_t count, const float *from, tr_error *err)
{
    const tri_code *code = tri_dtype_code(piece->dtype);
    char *room = malloc(BLOCKS_AT_ONCE * code->block_bytes);
    tr_status status = room ? TR_OK : tri_fail(err, TR_ERROR_RUNTIME, "no memory to encode");
    for (int64_t at = 0; status == TR_OK && at < count;) {
        uint64_t to = tri_dtype_size(piece->dtype, first + at);
        size_t bytes = 0;
        for (int b = 0; b < BLOCKS_AT_ONCE && at < count; b++, at += code->block) {
            int64_t left = count - at;
            code->encode(from + at, left < code->block ? left : code->block, room + bytes);
            bytes += code->block_bytes;
        }
        status = tri_executor_write_part(&session->executors[TRI_PROGRAM_TRAIN], piece->value, to,
                                         bytes, room, err);
    }
    free(room);
    return status;
}

tr_status tri_piece_read(const tri_session *session, const tri_piece *piece, int64_t first,
                         int64_t count, float *to, tr_error *err)
{
    if (tri_dtype_code(piece->dtype))
        return read_code(session, piece, first, count, to, err);
    return tri_executor_read_part(&session->executors[TRI_PROGRAM_TRAIN], piece->value,
                                  (uint64_t)first * sizeof(float), (size_t)count * sizeof(float),
                                  to, err);
}

tr_status tri_piece_write(const tri_session *session, const tri_piece *piece, int64_t first,
                          int64_t count, const float *from, uint16_t *room, tr_error *err)
{
    const void *source = from;
    size_t element = tri_dtype_bytes(piece->dtype);
    if (tri_dtype_code(piece->dtype))
        return write_code(session, piece, first, count, from, err);
    if (piece->dtype != TRI_F32) {
        for (int64_t i = 0; i < count; i++)
            room[i] =
                piece->dtype == TRI_BF16 ? tri_weight_to_bf16(from[i]) : tri_f32_to_f16(from[i]);
        source = room;
    }
    return tri_executor_write_part(&session->executors[TRI_PROGRAM_TRAIN], piece->value,
                                   (uint64_t)first * element, (size_t)count * element, source, err);
}
