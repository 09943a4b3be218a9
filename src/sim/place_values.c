/* The plan of a line, which all devices share, and whether what they make of it is right. */
#include "sim/place_values.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "sim/values_parts.h"

static void add_step(tri_valued_run *run, const char *what, const tri_calc_array *array)
{
    tri_valued_step *step = &run->steps[run->num_steps++];
    step->what = what;
    step->array = *array;
}

static void add_moves(tri_valued_run *run, const tri_calc_moves *moves)
{
    for (int i = 0; i < moves->num; i++)
        add_step(run, tri_calc_move_name(moves->items[i].kind), &moves->items[i].after);
}

static tr_status check_array(const tri_calc *calc, const tri_calc_array *array, tr_error *err)
{
    double count = 1;
    for (int d = 0; d < array->rank; d++) {
        const tri_calc_letter *letter = &calc->letters[array->dims[d].letter];
        if (letter->size == 0)
            return tri_fail(err, TR_ERROR_INPUT,
                            "--values needs the size of every letter, and %s has none; write "
                            "%s:4, or --sizes %s:4",
                            letter->name, letter->name, letter->name);
        count *= (double)letter->size;
    }
    if (count > TRI_VALUES_ELEMENTS)
        return tri_fail(err, TR_ERROR_INPUT,
                        "--values is for small arrays, and %s has %.0f elements; up to %d are "
                        "carried out",
                        array->name, count, TRI_VALUES_ELEMENTS);
    return TR_OK;
}

/* The numbers of an operand, as given or counted. */
static tr_status take_numbers(tri_values_plan *plan, int which, const tri_calc_array *array,
                              const tri_values *values, tr_error *err)
{
    int64_t count = 1;
    TRI_TRY(check_array(plan->calc, array, err));
    for (int d = 0; d < array->rank; d++)
        count *= plan->calc->letters[array->dims[d].letter].size;
    plan->whole[which] = calloc((size_t)count, sizeof **plan->whole);
    if (!plan->whole[which])
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for numbers");
    for (int g = 0; g < values->num_given; g++) {
        const tri_given_values *given = &values->given[g];
        if (strcmp(given->name, array->name) != 0)
            continue;
        if (given->num != count)
            return tri_fail(err, TR_ERROR_INPUT,
                            "--values gives %s %" PRId64 " numbers, and it has %" PRId64
                            " elements",
                            array->name, given->num, count);
        memcpy(plan->whole[which], given->numbers, (size_t)count * sizeof **plan->whole);
        return TR_OK;
    }
    for (int64_t i = 0; i < count; i++)
        plan->whole[which][i] = i + 1;
    plan->run->counted = true;
    return TR_OK;
}

/* An array that is given numbers must be one of the line's. */
static tr_status check_names(const tri_calc_line *line, const tri_values *values, tr_error *err)
{
    bool product = line->kind == TRI_CALC_PRODUCT;
    for (int g = 0; g < values->num_given; g++)
        if (strcmp(values->given[g].name, line->a.name) != 0 &&
            !(product && strcmp(values->given[g].name, line->b.name) == 0))
            return tri_fail(err, TR_ERROR_INPUT,
                            "--values gives numbers to %s, which is no operand; there %s %s%s%s",
                            values->given[g].name, product ? "are" : "is", line->a.name,
                            product ? " and " : "", product ? line->b.name : "");
    return TR_OK;
}

static tr_status make_plan(tri_values_plan *plan, const tri_values *values, tr_error *err)
{
    const tri_calc_line *line = plan->line;
    tri_calc *calc = plan->calc;
    tri_calc_product *p = &plan->product;
    tri_valued_run *run = plan->run;
    run->num_ranks = tri_calc_devices(calc, ~0u);
    if (run->num_ranks > TRI_VALUES_RANKS)
        return tri_fail(err, TR_ERROR_INPUT,
                        "--values runs each device as a thread, %d at most; the mesh has %d",
                        TRI_VALUES_RANKS, run->num_ranks);
    run->steps = calloc(TRI_CALC_MOVES * 3, sizeof *run->steps);
    if (!run->steps)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for the steps");
    TRI_TRY(check_names(line, values, err));
    TRI_TRY(take_numbers(plan, 0, &line->a, values, err));
    add_step(run, NULL, &line->a);
    if (line->kind == TRI_CALC_MOVE)
        TRI_TRY(tri_calc_move_to(calc, &line->a, &line->target, &plan->moves[0], err));
    if (line->kind != TRI_CALC_PRODUCT) {
        add_moves(run, &plan->moves[0]);
        return TR_OK;
    }
    TRI_TRY(take_numbers(plan, 1, &line->b, values, err));
    TRI_TRY(tri_calc_multiply(calc, &line->a, &line->b, line->has_target ? &line->target : NULL,
                              line->has_target ? line->target.name : "C", p, err));
    TRI_TRY(check_array(calc, &p->c, err));
    TRI_TRY(tri_calc_move_to(calc, &p->from_a, &p->a, &plan->moves[0], err));
    TRI_TRY(tri_calc_move_to(calc, &p->from_b, &p->b, &plan->moves[1], err));
    add_step(run, NULL, &line->b);
    add_moves(run, &plan->moves[0]);
    add_moves(run, &plan->moves[1]);
    add_step(run, "product", &p->c);
    add_moves(run, &p->after);
    return TR_OK;
}

/* What one device alone would have: whole operands, multiplied. */
static void whole_result(const tri_values_plan *plan, int64_t *result)
{
    const tri_calc *calc = plan->calc;
    const tri_calc_array *arrays[3] = {&plan->product.from_a, &plan->product.from_b,
                                       &plan->product.c};
    tri_value_box boxes[3];
    for (int i = 0; i < 3; i++)
        boxes[i] = tri_value_box_all(calc, arrays[i]);
    tri_value_multiply(arrays, boxes, plan->whole[0], plan->whole[1], result);
}

/* Each element of the last step, with terms added up, is that of the whole. */
static tr_status check_result(const tri_values_plan *plan, const int64_t *whole, tr_error *err)
{
    const tri_calc *calc = plan->calc;
    const tri_valued_step *last = &plan->run->steps[plan->run->num_steps - 1];
    tri_value_box all = tri_value_box_all(calc, &last->array);
    for (int r = 0; r < plan->run->num_ranks; r++) {
        tri_value_box box = tri_value_box_of(calc, &last->array, r);
        for (int64_t i = 0; i < tri_value_count(&box); i++) {
            int64_t sum = 0;
            for (int other = 0; other < plan->run->num_ranks; other++) {
                bool counts = true;
                for (int a = 0; a < calc->num_axes; a++)
                    counts &= last->array.terms >> a & 1 || tri_value_coordinate(calc, other, a) ==
                                                                tri_value_coordinate(calc, r, a);
                sum += counts ? last->local[other][i] : 0;
            }
            if (sum != whole[tri_value_place(&all, &box, i)])
                return tri_fail(err, TR_ERROR_INTERNAL,
                                "device %d has %" PRId64 " where one device alone has %" PRId64, r,
                                sum, whole[tri_value_place(&all, &box, i)]);
        }
    }
    return TR_OK;
}

tr_status tri_values_run(tri_calc *calc, const tri_calc_line *line, const tri_values *values,
                         tri_valued_run *run, tr_error *err)
{
    tri_values_plan *plan = calloc(1, sizeof *plan);
    int64_t *result = calloc(TRI_VALUES_ELEMENTS, sizeof *result);
    *run = (tri_valued_run){.num_ranks = 0};
    tr_status status =
        plan && result ? TR_OK : tri_fail(err, TR_ERROR_RUNTIME, "no memory for the run");
    if (status == TR_OK) {
        *plan = (tri_values_plan){.calc = calc, .line = line, .run = run};
        status = make_plan(plan, values, err);
    }
    if (status == TR_OK)
        status = tr_comm_run_threads(run->num_ranks, NULL, tri_values_device_run, plan, err);
    if (status == TR_OK && line->kind == TRI_CALC_PRODUCT) {
        whole_result(plan, result);
        status = check_result(plan, result, err);
    } else if (status == TR_OK) {
        status = check_result(plan, plan->whole[0], err);
    }
    if (plan) {
        free(plan->whole[0]);
        free(plan->whole[1]);
    }
    free(plan);
    free(result);
    if (status != TR_OK)
        tri_valued_run_fini(run);
    return status;
}

void tri_valued_run_fini(tri_valued_run *run)
{
    for (int s = 0; run->steps && s < run->num_steps; s++)
        for (int r = 0; r < TRI_VALUES_RANKS; r++)
            free(run->steps[s].local[r]);
    free(run->steps);
    *run = (tri_valued_run){.num_ranks = 0};
}
