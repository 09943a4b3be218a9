/* A trace.json, as `sim --trace` and `profile` read it. */
#include "fuzz.h"

#include <string.h>

#include "run/trace/trace_read.h"

static tr_status hear(void *context, const tri_trace_line *line, tr_error *err)
{
    const tri_trace_head *head = context;
    (void)err;
    fuzz_require(line->rank >= 0 && line->rank < head->num_ranks, "the rank is one of them");
    fuzz_require(line->lane >= 0 && line->lane < TRI_TRACE_MAX_LANES, "the row is one of them");
    fuzz_require(line->duration_ns >= 0, "time does not go back");
    fuzz_require(strlen(line->name) + strlen(line->category) + strlen(line->group) < 1 << 20,
                 "texts are there");
    return TR_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t num_bytes)
{
    tri_trace_head head = {0};
    tr_error err = {0};
    fuzz_fine(tri_trace_read(fuzz_file(data, num_bytes), &head, hear, &head, &err), &err);
    return 0;
}
