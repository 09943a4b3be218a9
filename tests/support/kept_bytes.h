/* What a program keeps of one micro-batch when its forward has ended, found from addresses alone.
 */
#ifndef TRI_TESTS_KEPT_BYTES_H
#define TRI_TESTS_KEPT_BYTES_H

#include <stdlib.h>

#include "program/program.h"

typedef struct kept_range {
    uint32_t space;
    uint64_t begin, end;
} kept_range;

static inline int kept_earlier(const void *a, const void *b)
{
    const kept_range *x = a, *y = b;
    if (x->space != y->space)
        return x->space < y->space ? -1 : 1;
    return x->begin < y->begin ? -1 : x->begin > y->begin;
}

static inline bool kept_is_forward(const tri_segment *segment)
{
    return segment->action == TRI_ACTION_F || segment->action == TRI_ACTION_RECV_F ||
           segment->action == TRI_ACTION_SEND_F;
}

/* The bytes, each counted once, of all that a forward makes and something else reads. */
static inline uint64_t kept_bytes(const tri_program *program)
{
    bool *made = calloc(program->num_values + 1, sizeof *made);
    bool *kept = calloc(program->num_values + 1, sizeof *kept);
    kept_range *ranges = calloc(program->num_values + 1, sizeof *ranges);
    size_t num = 0;
    uint64_t bytes = 0, end = 0;
    assert_true(made && kept && ranges);
    for (int forward = 1; forward >= 0; forward--)
        for (size_t s = 0; s < program->num_segments; s++)
            for (uint32_t i = 0; i < program->segments[s].count; i++) {
                const tri_instr *instr = &program->instrs[program->segments[s].first + i];
                if (kept_is_forward(&program->segments[s]) != forward)
                    continue;
                for (int k = 0; forward && k < instr->num_out; k++)
                    made[instr->out[k].value] = true;
                for (int j = 0; !forward && j < instr->num_in; j++)
                    if (instr->in[j].value != TRI_NONE)
                        kept[instr->in[j].value] |= made[instr->in[j].value];
            }
    for (size_t v = 0; v < program->num_values; v++) {
        const tri_operand *home = &program->home[v];
        uint64_t unit = TRI_PROGRAM_ALIGN, size = tri_value_bytes(&program->values[v]);
        if (kept[v] && program->spaces[home->space].kind >= TRI_SPACE_WORK)
            ranges[num++] = (kept_range){home->space, home->offset,
                                         home->offset + (size + unit - 1) / unit * unit};
    }
    qsort(ranges, num, sizeof *ranges, kept_earlier);
    for (size_t r = 0; r < num; r++) {
        if (r == 0 || ranges[r].space != ranges[r - 1].space)
            end = 0;
        uint64_t begin = ranges[r].begin > end ? ranges[r].begin : end;
        bytes += ranges[r].end > begin ? ranges[r].end - begin : 0;
        end = ranges[r].end > end ? ranges[r].end : end;
    }
    free(made);
    free(kept);
    free(ranges);
    return bytes;
}

#endif
