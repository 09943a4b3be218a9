#include "train/run/run_trace.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/fs.h"
#include "comm/clock_offset.h"
#include "run/trace/trace_file.h"
#include "train/run/run.h"

/* Of all ranks together, so that the file stays one that a viewer can open; a step, whatever it
 * has, finds room. */
enum { MOST_EVENTS = 2000000, MOST_OF_RANK = 500000 };

static tri_executor *executor_of(tri_run *r)
{
    return &r->session->executors[TRI_PROGRAM_TRAIN];
}

/* What each rank says, to all. */
static tr_status tell_all(tri_run *r, int64_t own, tr_error *err)
{
    if (r->ranks.size == 1)
        return TR_OK;
    return tr_all_gather(tr_comm_world(r->ranks.comm), &own, r->ranks.told, 1, TR_I64, err);
}

/* Steps that all ranks have room for. */
static tr_status agree_on_steps(tri_run *r, const tri_program *program, int64_t *steps,
                                tr_error *err)
{
    int64_t most = MOST_EVENTS / r->ranks.size, wanted = r->num_steps - r->session->step;
    if (most > MOST_OF_RANK)
        most = MOST_OF_RANK;
    *steps = most / tri_program_trace_events(program);
    *steps = *steps < 1 ? 1 : *steps;
    TRI_TRY(tell_all(r, *steps, err));
    for (int rank = 0; r->ranks.size > 1 && rank < r->ranks.size; rank++)
        if (r->ranks.told[rank] < *steps)
            *steps = r->ranks.told[rank];
    if (*steps > wanted)
        *steps = wanted > 0 ? wanted : 1;
    return TR_OK;
}

static tr_status compare_clocks(tri_run *r, int moment, tr_error *err)
{
    tri_trace_clock *clock = &tri_trace_about_of(r->trace->events)->clock;
    tri_clock_offset found = {0};
    if (r->ranks.size > 1)
        TRI_TRY(tri_clock_compare(r->ranks.comm, &found, err));
    clock->at_ns[moment] = found.at_ns;
    clock->offset_ns[moment] = found.offset_ns;
    if (found.error_ns > clock->error_ns)
        clock->error_ns = found.error_ns;
    return TR_OK;
}

tr_status tri_run_trace_open(tri_run *r, tr_error *err)
{
    const tri_program *program = &r->session->programs[TRI_PROGRAM_TRAIN];
    int64_t steps;
    TRI_TRY(agree_on_steps(r, program, &steps, err));
    TRI_TRY(tri_program_trace_create(program, steps, &r->trace, err));
    tri_trace_about *about = tri_trace_about_of(r->trace->events);
    about->rank = r->ranks.rank;
    about->num_ranks = r->ranks.size;
    r->trace->last_step = r->session->step + steps;
    TRI_TRY(compare_clocks(r, 0, err));
    if (r->ranks.rank == 0)
        tri_trace_remove_parts(r->config.dir);
    return TR_OK;
}

void tri_run_trace_begin_step(tri_run *r)
{
    if (!r->trace)
        return;
    bool records = r->session->step < r->trace->last_step;
    executor_of(r)->trace = records ? r->trace : NULL;
    if (records)
        tri_program_trace_begin(r->trace, r->session->step + 1);
    else
        tri_trace_about_of(r->trace->events)->left_out++;
}

void tri_run_trace_end_step(tri_run *r)
{
    if (r->trace && executor_of(r)->trace)
        tri_program_trace_end(r->trace);
}

enum { WRITTEN, UNSEEN, FAILED }; /* what came of a rank's part */

static tr_status write_own_part(tri_run *r, int64_t *came, tr_error *err)
{
    tr_status status = TR_OK;
    *came = WRITTEN;
    if (r->ranks.rank == 0)
        return TR_OK;
    if (tri_path_is_dir(r->config.dir))
        status = tri_trace_write_part(r->trace->events, r->config.dir, err);
    else
        *came = UNSEEN;
    if (status != TR_OK)
        *came = FAILED;
    return status;
}

static void warn_unseen(const tri_run *r)
{
    int num = 0, first = -1;
    for (int rank = r->ranks.size - 1; rank > 0; rank--)
        if (r->ranks.told[rank] == UNSEEN) {
            num++;
            first = rank;
        }
    if (num > 0)
        tri_run_warn(r, false,
                     "trace.json lacks %d rank%s, from rank %d on: their machines do not see %s; "
                     "put it on a file system that all machines share",
                     num, num == 1 ? "" : "s", first, r->config.dir);
}

/* When the others are done, and have nothing to compute. */
static void measure_peaks(tri_run *r)
{
    tri_device *device = &r->session->device;
    const tri_precision *precision = &r->session->config.compile.precision;
    tri_trace_peaks *peaks = &tri_trace_about_of(r->trace->events)->peaks;
    if (device->def->peak_flops)
        peaks->flops = device->def->peak_flops(device, precision->compute);
    if (device->def->peak_flops && precision->linear8)
        peaks->flops8 = device->def->peak_flops(device, TRI_F8E4M3);
    if (device->def->peak_bytes)
        peaks->bytes = device->def->peak_bytes(device);
}

tr_status tri_run_trace_write(tri_run *r, tr_error *err)
{
    int64_t came;
    if (!r->trace)
        return TR_OK;
    TRI_TRY(compare_clocks(r, 1, err));
    tri_trace_part_rows(r->trace->events);
    tr_status status = write_own_part(r, &came, err);
    tr_error other = {0}; /* a rank's own failure counts for more than that it met nobody */
    tr_status met = tell_all(r, came, &other);
    r->trace_done = true;
    if (status != TR_OK)
        return status;
    if (met != TR_OK)
        return tri_fail(err, met, "%s", other.message);
    if (r->ranks.rank != 0)
        return TR_OK;
    if (r->ranks.size > 1)
        warn_unseen(r);
    measure_peaks(r);
    return tri_trace_join(r->trace->events, r->config.dir, err);
}

void tri_run_trace_close(tri_run *r)
{
    if (!r->trace)
        return;
    /* What the rank was at when the run failed has no end; what it did before has. */
    if (!r->trace_done && tri_trace_num_events(r->trace->events) > 0 &&
        tri_path_is_dir(r->config.dir)) {
        tri_trace_part_rows(r->trace->events);
        (void)tri_trace_write_part(r->trace->events, r->config.dir, NULL);
    }
    executor_of(r)->trace = NULL;
    tri_program_trace_destroy(r->trace);
    r->trace = NULL;
}

void tri_run_trace_gather(const char *dir)
{
    if (tri_trace_has_parts(dir))
        (void)tri_trace_join(NULL, dir, NULL);
}

void tri_run_trace_gather_left(const char *dir)
{
    /* Parts of a run that is at work are for its rank 0. */
    int fd = tri_trace_has_parts(dir) ? open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0)
        tri_run_trace_gather(dir);
    if (fd >= 0)
        close(fd);
}
