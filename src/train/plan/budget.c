/* The search is over one number, the effort (recompute/effort.c), and each try is a whole plan: the
 * programs are compiled and their memory is laid out as it will be. A stage of efforts takes one
 * layer after the other to its level, so within a stage more effort is less memory, and halving
 * finds the least that fits. */
#include "train/plan/budget.h"

#include <inttypes.h>
#include <stdlib.h>

#include "train/health/replay.h"

/* Ranks that the search plans for, at most. Those of one stage differ by a head, a column or a
 * row. */
enum { MAX_RANKS_PLANNED = 16 };

typedef struct fitter {
    tri_session *session;
    int rank;
    tri_program programs[TRI_NUM_PROGRAMS]; /* of the rank, but for the training program */
    uint64_t smallest;                      /* of all plans tried */
    tr_error *err;
} fitter;

static tr_status compile_one(const fitter *f, int program, int64_t effort, tri_program *out)
{
    tri_session *session = f->session;
    tri_compile_config config = tri_session_compile_config(session, program);
    tri_batch_shape shape = tri_session_batch_shape(session, program);
    config.rank = f->rank;
    config.recompute.effort = effort;
    return tri_compile(&config, &session->params, tri_session_mode(program), &shape, out, NULL,
                       f->err);
}

static void forget_rank(fitter *f)
{
    for (int p = 0; p < TRI_NUM_PROGRAMS; p++)
        tri_program_fini(&f->programs[p]);
}

static tr_status plan_for_rank(fitter *f, int rank)
{
    forget_rank(f);
    f->rank = rank;
    for (int p = 0; p < TRI_NUM_PROGRAMS; p++)
        if (p != TRI_PROGRAM_TRAIN && tri_session_has(f->session, p))
            TRI_TRY(compile_one(f, p, 0, &f->programs[p]));
    return TR_OK;
}

/* The planned bytes of the rank with that effort. */
static tr_status measure(fitter *f, int64_t effort, uint64_t *bytes)
{
    tri_program *train = &f->programs[TRI_PROGRAM_TRAIN];
    TRI_TRY(compile_one(f, TRI_PROGRAM_TRAIN, effort, train));
    const tri_program *programs[TRI_NUM_PROGRAMS];
    size_t num = 0;
    for (int p = 0; p < TRI_NUM_PROGRAMS; p++)
        if (tri_session_has(f->session, p))
            programs[num++] = &f->programs[p];
    tri_store store;
    tri_store_plan(&store, &f->session->device, programs, num);
    store.sums.bytes = tri_replay_device_bytes(f->session, train);
    *bytes = tri_store_total(&store);
    if (f->smallest == 0 || *bytes < f->smallest)
        f->smallest = *bytes;
    tri_program_fini(train);
    return TR_OK;
}

static tr_status refuse(const fitter *f)
{
    char wanted[16], least[16];
    uint64_t budget = f->session->config.compile.recompute.budget_bytes;
    return tri_fail(
        f->err, TR_ERROR_INPUT,
        "layout.recompute asks for a plan within %s, but the smallest that "
        "recomputation reaches on rank %d is %" PRIu64
        " bytes (%s); set layout.recompute=budget:%" PRIu64
        ", use more micro-batches, or divide the model (layout.tp, layout.zero) or long rows "
        "(layout.cp) further",
        tri_text_bytes((double)budget, wanted), f->rank, f->smallest,
        tri_text_bytes((double)f->smallest, least), f->smallest);
}

/* The least effort from *effort on with which the rank fits. */
static tr_status search(fitter *f, int64_t *effort)
{
    const tri_compile_config *config = &f->session->config.compile;
    uint64_t budget = config->recompute.budget_bytes, bytes;
    int64_t layers = config->model.num_layers, below = *effort;
    TRI_TRY(measure(f, below, &bytes));
    if (bytes <= budget)
        return TR_OK;
    for (int64_t end = (below / layers + 1) * layers; end <= TRI_RECOMPUTE_STAGES * layers;
         end += layers) {
        TRI_TRY(measure(f, end, &bytes));
        int64_t fits = end;
        while (bytes <= budget && fits - below > 1) {
            int64_t middle = below + (fits - below) / 2;
            uint64_t there;
            TRI_TRY(measure(f, middle, &there));
            if (there <= budget)
                fits = middle;
            else
                below = middle;
        }
        if (bytes <= budget) {
            *effort = fits;
            return TR_OK;
        }
        below = end;
    }
    return refuse(f);
}

/* Whether the search plans for a rank: it is of this rank's stage, and not a mere copy. */
static bool is_planned(const tri_compile_config *config, int rank)
{
    const tri_mesh *mesh = &config->mesh;
    return tri_mesh_coordinate(mesh, rank, TRI_AXIS_PP) ==
               tri_mesh_coordinate(mesh, config->rank, TRI_AXIS_PP) &&
           (config->zero ? tri_mesh_coordinate(mesh, rank, TRI_AXIS_REPLICATE)
                         : tri_mesh_coordinate(mesh, rank, TRI_AXIS_DP)) == 0;
}

static tr_status fit(fitter *f, int64_t *effort)
{
    const tri_compile_config *config = &f->session->config.compile;
    int64_t before;
    do { /* until none of the ranks asks for more */
        before = *effort;
        for (int r = 0, num = 0; r < tri_mesh_ranks(&config->mesh) && num < MAX_RANKS_PLANNED;
             r++) {
            if (!is_planned(config, r))
                continue;
            num++;
            f->smallest = 0;
            TRI_TRY(plan_for_rank(f, r));
            TRI_TRY(search(f, effort));
        }
    } while (*effort != before && tri_mesh_ranks(&config->mesh) > 1);
    return TR_OK;
}

tr_status tri_session_fit(tri_session *session, tr_error *err)
{
    tri_recompute_config *recompute = &session->config.compile.recompute;
    if (recompute->kind != TRI_RECOMPUTE_BUDGET || !tri_session_has(session, TRI_PROGRAM_TRAIN))
        return TR_OK;
    fitter *f = calloc(1, sizeof *f);
    if (!f)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory to plan for a budget");
    f->session = session;
    f->err = err;
    int64_t effort = 0;
    tr_status status = fit(f, &effort);
    recompute->effort = effort;
    forget_rank(f);
    free(f);
    return status;
}

tr_status tri_session_check_budget(const tri_session *session, tr_error *err)
{
    const tri_recompute_config *recompute = &session->config.compile.recompute;
    uint64_t bytes = tri_store_total(&session->store);
    char text[16];
    if (recompute->kind != TRI_RECOMPUTE_BUDGET || !tri_session_has(session, TRI_PROGRAM_TRAIN) ||
        bytes <= recompute->budget_bytes)
        return TR_OK;
    uint64_t over = bytes - recompute->budget_bytes;
    return tri_fail(err, TR_ERROR_INPUT,
                    "the plan of rank %d takes %" PRIu64
                    " bytes (%s), more than those of the ranks that layout.recompute was fitted "
                    "to; set it to budget:%" PRIu64 ", or to full",
                    session->config.compile.rank, bytes, tri_text_bytes((double)bytes, text),
                    recompute->budget_bytes > over ? recompute->budget_bytes - over : 1);
}
