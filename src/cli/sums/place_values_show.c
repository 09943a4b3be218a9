/* trireme place --values: what every device has after each step of a line. */
#include <inttypes.h>
#include <stdio.h>

#include "cli/cli.h"
#include "cli/doc/json_doc.h"
#include "cli/sums/sums.h"
#include "sim/place_values.h"

/* "[6 14]", "[[1 2] [3 4]]" */
static void add_numbers(const int64_t *numbers, const int64_t *sizes, int num_dims, tri_text *text)
{
    int64_t inner = 1;
    if (num_dims == 0) {
        tri_text_add(text, "%" PRId64, *numbers);
        return;
    }
    for (int d = 1; d < num_dims; d++)
        inner *= sizes[d];
    tri_text_add(text, "[");
    for (int64_t i = 0; i < sizes[0]; i++) {
        tri_text_add(text, "%s", i ? " " : "");
        add_numbers(numbers + i * inner, sizes + 1, num_dims - 1, text);
    }
    tri_text_add(text, "]");
}

static void add_step(const tri_calc *calc, const tri_valued_run *run, const tri_valued_step *step,
                     tri_text *text)
{
    tri_text_add(text, "\n%s%s", step->what ? step->what : "", step->what ? "  " : "");
    tri_calc_write_array(calc, &step->array, text);
    tri_text_add(text, "\n");
    for (int r = 0; r < run->num_ranks; r++) {
        char device[80];
        int64_t sizes[TRI_CALC_DIMS];
        tri_values_device(calc, r, device);
        tri_values_sizes(calc, &step->array, r, sizes);
        tri_text_add(text, "  %-8s ", device);
        add_numbers(step->local[r], sizes, step->array.rank, text);
        tri_text_add(text, "\n");
    }
}

static void put_step(const tri_calc *calc, const tri_valued_run *run, const tri_valued_step *step,
                     json_t *list)
{
    tri_text array;
    json_t *item = tri_doc_item(list);
    tri_text_init(&array);
    tri_calc_write_array(calc, &step->array, &array);
    tri_doc_text(item, "step", step->what ? step->what : "given");
    tri_doc_text(item, "array", array.chars);
    tri_text_fini(&array);
    json_t *devices = tri_doc_list(item, "devices");
    for (int r = 0; r < run->num_ranks; r++) {
        char device[80];
        int64_t sizes[TRI_CALC_DIMS], count = 1;
        json_t *one = tri_doc_item(devices);
        tri_values_device(calc, r, device);
        tri_values_sizes(calc, &step->array, r, sizes);
        tri_doc_text(one, "device", device);
        json_t *shape = tri_doc_list(one, "shape"), *numbers = tri_doc_list(one, "numbers");
        for (int d = 0; d < step->array.rank; d++) {
            json_array_append_new(shape, json_integer(sizes[d]));
            count *= sizes[d];
        }
        for (int64_t i = 0; i < count; i++)
            json_array_append_new(numbers, json_integer(step->local[r][i]));
    }
}

tr_status tri_sums_values(tri_calc *calc, const tri_calc_line *line, const char *typed,
                          tri_text *text, json_t *list, tr_error *err)
{
    tri_values values;
    tri_valued_run run;
    TRI_TRY(tri_values_parse(typed, &values, err));
    tr_status status = tri_values_run(calc, line, &values, &run, err);
    tri_values_fini(&values);
    if (status != TR_OK)
        return status;
    if (!list) {
        tri_calc_write_machine(calc, text);
        tri_text_add(text, "every device is a thread; what each has\n");
        for (int i = 0; i < run.num_steps; i++)
            add_step(calc, &run, &run.steps[i], text);
        tri_text_add(text, "\nthe same as one device alone makes of it%s\n",
                     run.counted ? "; arrays without numbers got 1, 2, 3, ..." : "");
    } else {
        json_t *item = tri_doc_item(list);
        tri_doc_text(item, "kind", "values");
        json_t *steps = tri_doc_list(item, "steps");
        for (int i = 0; i < run.num_steps; i++)
            put_step(calc, &run, &run.steps[i], steps);
    }
    tri_valued_run_fini(&run);
    return TR_OK;
}
