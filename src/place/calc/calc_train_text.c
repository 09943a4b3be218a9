/* A training step of two layers, for people: every product with its collectives, then the sums and
 * what bounds them, then from where on arithmetic would be the bound. */
#include "place/calc/calc.h"

#include <math.h>
#include <string.h>

/* A sum of amounts with different letters. */
typedef struct amounts {
    tri_amount items[TRI_CALC_STEPS * 8];
    int num;
} amounts;

static void add_amount(amounts *sum, const tri_amount *amount)
{
    if (amount->num == 0)
        return;
    for (int i = 0; i < sum->num; i++)
        if (tri_amount_alike(&sum->items[i], amount)) {
            tri_amount *item = &sum->items[i];
            if (item->den == amount->den) {
                item->num += amount->num;
            } else {
                item->num = item->num * amount->den + amount->num * item->den;
                item->den *= amount->den;
            }
            return;
        }
    if (sum->num < (int)(sizeof sum->items / sizeof *sum->items))
        sum->items[sum->num++] = *amount;
}

static void write_amounts(const tri_calc *calc, const amounts *sum, const char *unit,
                          tri_text *text)
{
    for (int i = 0; i < sum->num; i++) {
        tri_text_add(text, "%s", i ? " + " : "");
        tri_calc_write_amount(calc, &sum->items[i], unit, text);
    }
    if (sum->num == 0)
        tri_text_add(text, "0 %s", unit);
}

typedef struct totals {
    amounts flops, sent;
    double compute, wire; /* seconds; below 0: not known */
} totals;

static void add_seconds(double *sum, double seconds)
{
    *sum = *sum < 0 || seconds < 0 ? -1 : *sum + seconds;
}

static void add_moves(totals *sum, const tri_calc_moves *moves)
{
    add_seconds(&sum->wire, tri_calc_move_seconds(moves));
    for (int i = 0; i < moves->num; i++)
        add_amount(&sum->sent, &moves->items[i].sent);
}

static totals total_of(const tri_calc *calc, const tri_calc_training *t, const char *phase)
{
    totals sum = {0};
    for (int i = 0; i < TRI_CALC_STEPS; i++) {
        const tri_calc_product *p = &t->steps[i].product;
        if (phase && strcmp(phase, t->steps[i].phase) != 0)
            continue;
        add_amount(&sum.flops, &p->flops);
        add_seconds(&sum.compute, tri_calc_compute_seconds(calc, p));
        add_moves(&sum, &p->before);
        add_moves(&sum, &p->after);
    }
    return sum;
}

static void write_step(const tri_calc *calc, const tri_calc_product *p, tri_text *text)
{
    for (int i = 0; i < p->before.num; i++)
        tri_calc_write_move(calc, &p->before.items[i], text);
    tri_text_add(text, "  %-15s ", "product");
    tri_calc_write_array(calc, &p->a, text);
    tri_text_add(text, " . ");
    tri_calc_write_array(calc, &p->b, text);
    tri_text_add(text, " -> ");
    tri_calc_write_array(calc, &p->c, text);
    tri_text_add(text, "\n  %-15s ", "");
    tri_calc_write_amount(calc, &p->flops, "FLOP", text);
    double seconds = tri_calc_compute_seconds(calc, p);
    if (seconds >= 0) {
        tri_text_add(text, ", ");
        tri_calc_write_seconds(seconds, text);
    }
    tri_text_add(text, "\n");
    for (int i = 0; i < p->after.num; i++)
        tri_calc_write_move(calc, &p->after.items[i], text);
}

static void write_total(const tri_calc *calc, const char *name, const totals *sum, tri_text *text)
{
    tri_text_add(text, "  %-10s arithmetic ", name);
    write_amounts(calc, &sum->flops, "FLOP", text);
    if (sum->compute >= 0) {
        tri_text_add(text, ", ");
        tri_calc_write_seconds(sum->compute, text);
    }
    tri_text_add(text, "; sends ");
    write_amounts(calc, &sum->sent, "B", text);
    if (sum->wire >= 0) {
        tri_text_add(text, ", ");
        tri_calc_write_seconds(sum->wire, text);
    }
    if (sum->wire >= 0 && sum->compute >= 0)
        tri_text_add(text, "; bound by %s",
                     sum->wire > sum->compute ? "communication" : "arithmetic");
    tri_text_add(text, "\n");
}

static double size_of(const tri_calc *calc, const char *name)
{
    for (int l = 0; l < calc->num_letters; l++)
        if (strcmp(calc->letters[l].name, name) == 0)
            return (double)calc->letters[l].size;
    return 0;
}

/* Rows of a device from which on a step of fsdp+tp is bound by arithmetic, with so many devices
 * along the model's axes: a / Y where the model's collectives leave 1 - Y b / F of the time.
 * Infinite when they take all of it; one device has none. */
static double rows_with(double model_devices, double a, double b, double width)
{
    double left = model_devices > 1 ? 1 - model_devices * b / width : 1;
    return left > 0 ? a / (model_devices * left) : (double)INFINITY;
}

/* Of all ways to divide the devices, the one that needs the fewest rows; or, with rows, that
 * communicates least: X a / B + Y b / F of the time of the arithmetic. */
static int best_division(int devices, double a, double b, double width, double rows)
{
    int best = 1;
    double least = (double)INFINITY;
    for (int model = 1; model <= devices; model++) {
        if (devices % model != 0)
            continue;
        int data = devices / model;
        double share = rows > 0
                           ? (data > 1 ? data * a / rows : 0) + (model > 1 ? model * b / width : 0)
                           : rows_with(model, a, b, width);
        if (share < least) {
            least = share;
            best = model;
        }
    }
    return best;
}

static void write_division(const tri_calc *calc, const tri_calc_training *t, int model,
                           tri_text *text)
{
    int devices = tri_calc_devices(calc, t->data_axes | t->model_axes);
    tri_text_add(text, "%d along the data's axes and %d along the model's", devices / model, model);
    if (model == 1)
        tri_text_add(text, ", which is fsdp alone");
    if (model == devices)
        tri_text_add(text, ", which is tp alone");
}

/* a, b: rows for which moving a weight once takes as long as multiplying, over the data's and over
 * the model's axes. */
static void write_both_limits(const tri_calc *calc, const tri_calc_training *t, double a, double b,
                              tri_text *text)
{
    double width = size_of(calc, "F"), rows = size_of(calc, "B");
    int devices = tri_calc_devices(calc, t->data_axes | t->model_axes);
    int model = tri_calc_devices(calc, t->model_axes);
    static const char meaning[] = "a %.4g and b %.4g: bytes/2 * C/W of the data's and the model's "
                                  "axes";
    if (width <= 0) {
        tri_text_add(text,
                     "  from %.4g/F rows of B a device on where F is %.0f or more (4 a b / F, ",
                     4 * a * b, 4 * b);
        tri_text_add(text, meaning, a, b);
        tri_text_add(text, ")\n");
        return;
    }
    double here = rows_with(model, a, b, width);
    if (isinf(here))
        tri_text_add(text,
                     "  never on this mesh: %d devices along the model's axes are more than "
                     "F/b = %.4g",
                     model, width / b);
    else
        tri_text_add(text,
                     "  from %.4g rows of B a device on, on this mesh (a / (Y (1 - Y b / F)), Y %d",
                     here, model);
    tri_text_add(text, isinf(here) ? " (" : ", ");
    tri_text_add(text, meaning, a, b);
    tri_text_add(text, ")\n");
    int best = best_division(devices, a, b, width, 0);
    tri_text_add(text, "  from %.4g rows on with ", rows_with(best, a, b, width));
    write_division(calc, t, best, text);
    tri_text_add(text, "\n");
    if (width >= 4 * b)
        tri_text_add(text,
                     "  many devices: from %.4g rows on, with %.4g along the model's axes "
                     "(4 a b / F, F / (2 b))\n",
                     4 * a * b / width, width / (2 * b));
    else
        tri_text_add(text,
                     "  F is below 4 b = %.0f: two devices along the model's axes take more "
                     "than half of the time already\n",
                     4 * b);
    if (rows > 0) {
        tri_text_add(text, "  least communication for these sizes: ");
        write_division(calc, t, best_division(devices, a, b, width, rows), text);
        tri_text_add(text, "\n");
    }
}

/* With many devices, (N-1)/N is 1. `ratio` is the rows for which a weight that is moved once takes
 * as long as it is multiplied: bytes / 2 * C / W. */
static void write_limits(const tri_calc *calc, const tri_calc_training *t, tri_text *text)
{
    if (!calc->device || !calc->link || calc->device->dense[calc->rate] <= 0)
        return;
    double peak = calc->device->dense[calc->rate];
    double width = size_of(calc, "F");
    double data_rate = tri_link_ring_bytes_per_s(calc->link, tri_calc_num_axes(t->data_axes));
    double model_rate = tri_link_ring_bytes_per_s(calc->link, tri_calc_num_axes(t->model_axes));
    double data_ratio = calc->element_bytes / 2 * peak / data_rate;
    double model_ratio = calc->element_bytes / 2 * peak / model_rate;
    tri_text_add(text, "\nbound by arithmetic, with everything overlapped and many devices,\n");
    if (!t->model_axes) {
        tri_text_add(text,
                     "  from %.4g rows of B a device on (bytes/2 * C/W, C %.4g TFLOP/s, W %.4g "
                     "GB/s)\n",
                     data_ratio, peak * 1e-12, data_rate * 1e-9);
    } else if (!t->data_axes) {
        if (width > 0)
            tri_text_add(text, "  up to %.1f devices along ", width / model_ratio);
        else
            tri_text_add(text, "  up to F/%.4g devices along ", model_ratio);
        tri_calc_write_axes(calc, t->model_axes, text);
        tri_text_add(text, " (F / (bytes/2 * C/W), C %.4g TFLOP/s, W %.4g GB/s)\n", peak * 1e-12,
                     model_rate * 1e-9);
    } else {
        write_both_limits(calc, t, data_ratio, model_ratio, text);
    }
}

void tri_calc_report_training(const tri_calc *calc, const tri_calc_training *t, tri_text *text)
{
    const tri_calc_array *arrays[] = {&t->in, &t->w_in, &t->w_out, &t->out};
    tri_text_add(text, "%s: ", t->strategy);
    tri_calc_write_machine(calc, text);
    tri_text_add(text, "\n ");
    for (int i = 0; i < 4; i++) {
        tri_text_add(text, "%s", i == 0 ? " " : i == 3 ? " -> " : " . ");
        tri_calc_write_array(calc, arrays[i], text);
    }
    tri_text_add(text, "\n");
    for (int i = 0; i < TRI_CALC_STEPS; i++) {
        if (i == 0 || strcmp(t->steps[i].phase, t->steps[i - 1].phase) != 0)
            tri_text_add(text, "\n%s\n", t->steps[i].phase);
        write_step(calc, &t->steps[i].product, text);
    }
    totals forward = total_of(calc, t, "forward"), backward = total_of(calc, t, "backward");
    totals step = total_of(calc, t, NULL);
    tri_text_add(text, "\neach device\n");
    write_total(calc, "forward", &forward, text);
    write_total(calc, "backward", &backward, text);
    write_total(calc, "step", &step, text);
    if (step.wire >= 0 && step.compute >= 0) {
        tri_text_add(text, "  %-10s ", "time");
        tri_calc_write_seconds(
            fmax(forward.compute, forward.wire) + fmax(backward.compute, backward.wire), text);
        tri_text_add(text, " when communication hides behind arithmetic, ");
        tri_calc_write_seconds(step.compute + step.wire, text);
        tri_text_add(text, " when it does not\n");
    }
    write_limits(calc, t, text);
}
