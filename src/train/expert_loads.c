#include "train/expert_loads.h"

#include <stdlib.h>
#include <string.h>

static const char ending[] = ".router.load";

static bool is_load(const tri_value *value)
{
    size_t length = strlen(value->name), own = sizeof ending - 1;
    return value->output && length > own && strcmp(value->name + length - own, ending) == 0;
}

/* The layer in "layers.12.mlp.router.load": the first number of the name. */
static long layer_of(const tri_value *value)
{
    return strtol(value->name + strcspn(value->name, "0123456789"), NULL, 10);
}

/* All loads of a program, layers ascending; returns how many. `list` may be NULL, to count. */
static size_t list_loads(const tri_program *program, tri_id *list)
{
    size_t num = 0;
    for (size_t v = 0; v < program->num_values; v++) {
        if (!is_load(&program->values[v]))
            continue;
        size_t at = num++;
        if (!list)
            continue;
        for (; at > 0 && layer_of(&program->values[list[at - 1]]) > layer_of(&program->values[v]);
             at--)
            list[at] = list[at - 1];
        list[at] = (tri_id)v;
    }
    return num;
}

tr_status tri_expert_loads_find(tri_expert_loads *loads, const tri_program *program,
                                const tri_program *second, tr_error *err)
{
    *loads = (tri_expert_loads){.num = list_loads(program, NULL)};
    if (loads->num == 0)
        return TR_OK;
    loads->value = malloc(loads->num * sizeof *loads->value);
    loads->second = malloc(loads->num * sizeof *loads->second);
    loads->largest = calloc(loads->num, sizeof *loads->largest);
    if (!loads->value || !loads->second || !loads->largest)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for the loads of experts");
    list_loads(program, loads->value);
    if (second && list_loads(second, NULL) == loads->num)
        list_loads(second, loads->second);
    return TR_OK;
}

void tri_expert_loads_read(tri_expert_loads *loads, const tri_executor *executor, bool repeated)
{
    loads->most = 0;
    for (size_t i = 0; i < loads->num; i++) {
        tri_id value = repeated ? loads->second[i] : loads->value[i];
        const float *load = tri_executor_memory(executor, value, 0);
        int64_t count = tri_shape_count(&executor->program->values[value].shape);
        double sum = 0, largest = 0;
        for (int64_t e = 0; load && e < count; e++) {
            sum += (double)load[e];
            largest = (double)load[e] > largest ? (double)load[e] : largest;
        }
        loads->largest[i] = sum > 0 ? (float)(largest * (double)count / sum) : 0;
        loads->most = loads->largest[i] > loads->most ? loads->largest[i] : loads->most;
    }
}

void tri_expert_loads_fini(tri_expert_loads *loads)
{
    free(loads->value);
    free(loads->second);
    free(loads->largest);
    *loads = (tri_expert_loads){0};
}
