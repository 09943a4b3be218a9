/* Whether the ranks of a machine fit into it together. Each would find enough room for itself. */
#include <stdlib.h>

#include "base/system_memory.h"
#include "base/text.h"
#include "train/ranks.h"

tr_status tri_ranks_judge_room(const tri_rank_room *rooms, int num, tr_error *err)
{
    for (int first = 0; first < num; first++) {
        int64_t wanted = 0, available = 0;
        int here = 0;
        if (rooms[first].machine != first)
            continue;
        for (int r = first; r < num; r++) {
            if (rooms[r].machine != first)
                continue;
            here++;
            wanted += rooms[r].wanted;
            if (rooms[r].available > 0 && (available == 0 || rooms[r].available < available))
                available = rooms[r].available;
        }
        char text[2][16];
        if (available > 0 && wanted > available)
            return tri_fail(err, TR_ERROR_INPUT,
                            "the %d rank%s on the machine of rank %d need %s of memory together, "
                            "and %s are available; start fewer ranks there, divide the model "
                            "further (layout.zero, layout.tp), raise layout.microbatches, or lower "
                            "train.batch or data.seq_len (`trireme plan` shows what takes how "
                            "much)",
                            here, here == 1 ? "" : "s", first,
                            tri_text_bytes((double)wanted, text[0]),
                            tri_text_bytes((double)available, text[1]));
    }
    return TR_OK;
}

tr_status tri_ranks_check_room(const tri_ranks *ranks, const tri_session *session, tr_error *err)
{
    enum { NUM = sizeof(tri_rank_room) / sizeof(int64_t) };
    const tri_device_def *device = session->device.def;
    if (ranks->size == 1 || device == &tri_device_null || device->queue)
        return TR_OK;
    tri_rank_room *rooms = calloc((size_t)ranks->size, sizeof *rooms);
    if (!rooms)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for %d ranks", ranks->size);
    tri_rank_room own = {.machine = tri_comm_machine(ranks->comm, ranks->rank),
                         .wanted = (int64_t)tri_store_total(&session->store),
                         .available = (int64_t)tri_system_memory_read("").available};
    tr_status status = tr_all_gather(tr_comm_world(ranks->comm), &own, rooms, NUM, TR_I64, err);
    if (status == TR_OK)
        status = tri_ranks_judge_room(rooms, ranks->size, err);
    free(rooms);
    return status;
}
