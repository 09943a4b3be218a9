/* A product, for people: which of the four cases each axis is, what travels, and what takes
 * longest.
 */
#include "place/calc/calc.h"

static int letter_cut_over(const tri_calc_array *array, int axis)
{
    for (int d = 0; d < array->rank; d++)
        for (int i = 0; i < array->dims[d].num_cuts; i++)
            if (array->dims[d].cuts[i] == axis)
                return array->dims[d].letter;
    return -1;
}

static bool has_letter(const tri_calc_array *array, int letter)
{
    for (int d = 0; d < array->rank; d++)
        if (array->dims[d].letter == letter)
            return true;
    return false;
}

/* One line for each axis that cuts anything, from what the rule left of the operands. */
static void write_case(const tri_calc *calc, const tri_calc_product *p, int axis, tri_text *text)
{
    const tri_calc_array *a = &p->from_a, *b = &p->from_b;
    int in_a = letter_cut_over(a, axis), in_b = letter_cut_over(b, axis);
    bool inner_a = in_a >= 0 && has_letter(b, in_a), inner_b = in_b >= 0 && has_letter(a, in_b);
    bool kept_a = letter_cut_over(&p->a, axis) >= 0;
    const char *name = calc->axes[axis].name;
    const char *la = in_a >= 0 ? calc->letters[in_a].name : "";
    const char *lb = in_b >= 0 ? calc->letters[in_b].name : "";
    if (in_a < 0 && in_b < 0)
        return;
    tri_text_add(text, "  %s: ", name);
    if (p->c.terms & 1u << axis)
        tri_text_add(text, "%s is cut in both: each device has a term of the sum\n", la);
    else if (inner_a && inner_b)
        tri_text_add(text, "%s is cut in %s, %s in %s: both are gathered\n", la, a->name, lb,
                     b->name);
    else if (inner_a || inner_b)
        tri_text_add(text, "%s, which is summed over, is cut in %s only: it is gathered first\n",
                     inner_a ? la : lb, inner_a ? a->name : b->name);
    else if (in_a >= 0 && in_b >= 0)
        tri_text_add(text, "%s of %s and %s of %s are both cut: %s is gathered first\n", la,
                     a->name, lb, b->name, kept_a ? b->name : a->name);
    else
        tri_text_add(text, "%s is cut, and is not summed over: local\n", in_a >= 0 ? la : lb);
}

static void write_rate(const tri_calc *calc, const tri_calc_product *p, tri_text *text)
{
    double flops, bytes = 0, one;
    bool known = tri_amount_known(&p->flops, &flops);
    double seconds = tri_calc_compute_seconds(calc, p);
    tri_text_add(text, "  %-15s ", "arithmetic");
    tri_calc_write_amount(calc, &p->flops, "FLOP", text);
    tri_text_add(text, " each");
    if (seconds >= 0) {
        tri_text_add(text, ", ");
        tri_calc_write_seconds(seconds, text);
        tri_text_add(text, " at %.4g TFLOP/s", calc->device->dense[calc->rate] * 1e-12);
    } else if (calc->device && known) {
        tri_text_add(text, " (no rate for %s in the table)", calc->dtype);
    }
    tri_text_add(text, "\n  %-15s ", "memory");
    for (int i = 0; i < 3; i++) {
        if (tri_amount_known(&p->traffic[i], &one))
            bytes += one;
        else
            known = false;
    }
    for (int i = 0; !known && i < 3; i++) {
        tri_text_add(text, "%s", i ? " + " : "");
        tri_calc_write_amount(calc, &p->traffic[i], "B", text);
    }
    if (known) {
        tri_amount all = tri_amount_of(bytes);
        tri_calc_write_amount(calc, &all, "B", text);
        tri_text_add(text, " each, %.4g FLOP/byte", bytes > 0 ? flops / bytes : 0);
    }
    seconds = tri_calc_memory_seconds(calc, p);
    if (seconds >= 0) {
        tri_text_add(text, ", ");
        tri_calc_write_seconds(seconds, text);
        tri_text_add(text, " at %.4g GB/s", calc->device->memory_bytes_per_s * 1e-9);
    }
    tri_text_add(text, "\n");
}

static void write_bound(const tri_calc *calc, const tri_calc_product *p, tri_text *text)
{
    double compute = tri_calc_compute_seconds(calc, p), memory = tri_calc_memory_seconds(calc, p);
    double before = tri_calc_move_seconds(&p->before), after = tri_calc_move_seconds(&p->after);
    if (compute < 0 || memory < 0 || before < 0 || after < 0)
        return;
    double wire = before + after;
    tri_text_add(text, "  %-15s ", "communication");
    tri_calc_write_seconds(wire, text);
    tri_text_add(text, "\n\n  bound by %s\n",
                 wire > compute && wire > memory ? "communication"
                 : memory > compute              ? "memory"
                                                 : "arithmetic");
}

void tri_calc_report_product(const tri_calc *calc, const tri_calc_product *product, tri_text *text)
{
    const tri_calc_array *a = &product->from_a, *b = &product->from_b;
    tri_calc_write_given(calc, a, text);
    tri_text_add(text, " . ");
    tri_calc_write_given(calc, b, text);
    if (product->has_target) {
        tri_text_add(text, " -> ");
        tri_calc_write_given(calc, &product->target, text);
    }
    tri_text_add(text, "\n");
    tri_calc_write_machine(calc, text);
    tri_text_add(text, "\n");
    bool any = false;
    for (int axis = 0; axis < calc->num_axes; axis++) {
        any |= letter_cut_over(a, axis) >= 0 || letter_cut_over(b, axis) >= 0;
        write_case(calc, product, axis, text);
    }
    if (!any)
        tri_text_add(text, "  nothing is cut: every device computes the whole product\n");
    tri_text_add(text, "\n");
    for (int i = 0; i < product->before.num; i++)
        tri_calc_write_move(calc, &product->before.items[i], text);
    tri_text_add(text, "  %-15s ", "product");
    tri_calc_write_array(calc, &product->a, text);
    tri_text_add(text, " . ");
    tri_calc_write_array(calc, &product->b, text);
    tri_text_add(text, " -> ");
    tri_calc_write_array(calc, &product->c, text);
    tri_text_add(text, "\n");
    for (int i = 0; i < product->after.num; i++)
        tri_calc_write_move(calc, &product->after.items[i], text);
    tri_text_add(text, "\n");
    write_rate(calc, product, text);
    write_bound(calc, product, text);
}
