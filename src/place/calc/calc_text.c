/* What the calculator found, for people. GB is 10^9, GiB 2^30; exact bytes stand beside. */
#include "place/calc/calc.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

void tri_calc_write_axes(const tri_calc *calc, unsigned axes, tri_text *text)
{
    bool short_names = true, first = true;
    for (int a = 0; a < calc->num_axes; a++)
        short_names &= strlen(calc->axes[a].name) == 1;
    for (int a = 0; a < calc->num_axes; a++)
        if (axes & 1u << a) {
            tri_text_add(text, "%s%s", first || short_names ? "" : "*", calc->axes[a].name);
            first = false;
        }
}

static void write_cuts(const tri_calc *calc, const tri_calc_dim *dim, tri_text *text)
{
    bool short_names = true;
    for (int a = 0; a < calc->num_axes; a++)
        short_names &= strlen(calc->axes[a].name) == 1;
    for (int i = 0; i < dim->num_cuts; i++)
        tri_text_add(text, "%s%s",
                     i == 0        ? "@"
                     : short_names ? ""
                                   : "*",
                     calc->axes[dim->cuts[i]].name);
}

static void write_array(const tri_calc *calc, const tri_calc_array *array, bool sizes,
                        tri_text *text)
{
    tri_text_add(text, "%s[", array->name);
    for (int d = 0; d < array->rank; d++) {
        const tri_calc_letter *letter = &calc->letters[array->dims[d].letter];
        tri_text_add(text, "%s%s", d ? ", " : "", letter->name);
        if (sizes && letter->size > 0)
            tri_text_add(text, ":%" PRId64, letter->size);
        write_cuts(calc, &array->dims[d], text);
    }
    tri_text_add(text, "]");
    if (array->terms) {
        tri_text_add(text, "{P:");
        tri_calc_write_axes(calc, array->terms, text);
        tri_text_add(text, "}");
    }
}

void tri_calc_write_array(const tri_calc *calc, const tri_calc_array *array, tri_text *text)
{
    write_array(calc, array, false, text);
}

void tri_calc_write_given(const tri_calc *calc, const tri_calc_array *array, tri_text *text)
{
    write_array(calc, array, true, text);
}

/* ---- amounts ---- */

#define HUGE_AMOUNT 1e18 /* from here on, powers of ten say more than units */

static void reduce_fraction(double *num, double *den)
{
    const double exact = 9007199254740992.0; /* 2^53 */
    if (*num < 1 || *den < 1 || *num > exact || *den > exact || *num != floor(*num) ||
        *den != floor(*den))
        return;
    uint64_t a = (uint64_t)*num, b = (uint64_t)*den;
    while (b) {
        uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    *num /= (double)a;
    *den /= (double)a;
}

/* "3·I·J/16" */
static void write_formula(const tri_calc *calc, const tri_amount *amount, tri_text *text)
{
    double num = amount->num, den = amount->den;
    bool first = true;
    reduce_fraction(&num, &den);
    if (num != 1) {
        tri_text_add(text, "%.15g", num);
        first = false;
    }
    for (int l = 0; l < TRI_CALC_LETTERS; l++)
        for (int k = 0; k < amount->power[l]; k++) {
            tri_text_add(text, "%s%s", first ? "" : "\u00b7", calc->letters[l].name);
            first = false;
        }
    if (den != 1)
        tri_text_add(text, "/%.15g", den);
}

void tri_calc_write_amount(const tri_calc *calc, const tri_amount *amount, const char *unit,
                           tri_text *text)
{
    double value;
    char count[16];
    if (tri_amount_known(amount, &value) && value >= HUGE_AMOUNT) {
        tri_text_add(text, "%.4g %s", value, unit);
        return;
    }
    if (tri_amount_known(amount, &value)) {
        tri_text_count(value, count);
        tri_text_add(text, "%s%s%s", count, strchr(count, ' ') ? "" : " ", unit);
        return;
    }
    write_formula(calc, amount, text);
    tri_text_add(text, " %s", strcmp(unit, "B") == 0 ? "bytes" : unit);
}

void tri_calc_write_seconds(double seconds, tri_text *text)
{
    static const char *const unit[] = {"s", "ms", "us", "ns"};
    int u = 0;
    while (u < 3 && seconds < 1 && seconds > 0) {
        seconds *= 1000;
        u++;
    }
    if (seconds == 0)
        tri_text_add(text, "0 s");
    else
        tri_text_add(text, "%.*f %s", seconds < 10 ? 2 : seconds < 100 ? 1 : 0, seconds, unit[u]);
}

static void write_memory(const tri_calc *calc, const tri_amount *bytes, tri_text *text)
{
    double value;
    char size[16];
    if (tri_amount_known(bytes, &value) && value < HUGE_AMOUNT)
        tri_text_add(text, "%s (%.0f bytes)", tri_text_bytes(value, size), value);
    else
        tri_calc_write_amount(calc, bytes, "B", text);
}

/* ---- arrays ---- */

static void write_mesh(const tri_calc *calc, tri_text *text)
{
    int devices = tri_calc_devices(calc, ~0u);
    if (calc->num_axes == 0)
        tri_text_add(text, "one device");
    for (int a = 0; a < calc->num_axes; a++)
        tri_text_add(text, "%s%s:%d", a ? "," : "mesh ", calc->axes[a].name, calc->axes[a].size);
    if (calc->num_axes > 0)
        tri_text_add(text, ", %d device%s", devices, devices == 1 ? "" : "s");
}

/* The mesh, the type, the device and the link. */
void tri_calc_write_machine(const tri_calc *calc, tri_text *text)
{
    write_mesh(calc, text);
    tri_text_add(text, "; %s", calc->dtype);
    if (calc->device)
        tri_text_add(text, "; %s", calc->device->title);
    if (calc->link) {
        tri_text_add(text, "; %s, %.4g GB/s", calc->link->title, calc->link->bytes_per_s * 1e-9);
        if (calc->link->torus_axes > 0)
            tri_text_add(text, " each way on each axis");
    }
    if (calc->latency_s > 0)
        tri_text_add(text, ", %.4g us a message", calc->latency_s * 1e6);
    tri_text_add(text, "\n");
}

static void write_local_shape(const tri_calc *calc, const tri_calc_array *array, tri_text *text)
{
    for (int d = 0; d < array->rank; d++) {
        const tri_calc_dim *dim = &array->dims[d];
        int shards = tri_calc_shards(calc, dim);
        const tri_calc_letter *letter = &calc->letters[dim->letter];
        tri_text_add(text, "%s", d ? " x " : "");
        if (letter->size > 0)
            tri_text_add(text, "%" PRId64, tri_calc_largest(calc, dim));
        else if (shards > 1)
            tri_text_add(text, "%s/%d", letter->name, shards);
        else
            tri_text_add(text, "%s", letter->name);
    }
    if (array->rank == 0)
        tri_text_add(text, "one element");
}

/* Whether the larger shards of a dim, of which there are so many, are its first. */
static bool larger_first(const tri_calc *calc, const tri_calc_dim *dim, int larger)
{
    int64_t begin, most = tri_calc_largest(calc, dim);
    for (int shard = 0; shard < larger; shard++)
        if (tri_calc_piece(calc, dim, shard, &begin) != most)
            return false;
    return true;
}

/* Shards that are not all of one size. */
static void write_uneven(const tri_calc *calc, const tri_calc_array *array, tri_text *text)
{
    for (int d = 0; d < array->rank; d++) {
        const tri_calc_dim *dim = &array->dims[d];
        const tri_calc_letter *letter = &calc->letters[dim->letter];
        int shards = tri_calc_shards(calc, dim);
        if (letter->size == 0 || letter->size % shards == 0)
            continue;
        int more = (int)(letter->size % shards);
        int64_t large = tri_calc_largest(calc, dim);
        tri_text_add(text,
                     "  uneven      %s: %s%d of %d shards have %" PRId64 ", the others %" PRId64
                     "; each takes the room of the largest\n",
                     letter->name, larger_first(calc, dim, more) ? "the first " : "", more, shards,
                     large, large - 1);
    }
}

void tri_calc_report_array(const tri_calc *calc, const tri_calc_array *array, tri_text *text)
{
    unsigned all = calc->num_axes ? (1u << calc->num_axes) - 1 : 0;
    unsigned cut = tri_calc_cut_axes(array), copied = all & ~cut & ~array->terms;
    int devices = tri_calc_devices(calc, all), copies = tri_calc_devices(calc, copied);
    tri_amount local = tri_calc_bytes(calc, array, false);
    tri_amount whole = tri_calc_bytes(calc, array, true);
    tri_amount total = tri_amount_scaled(local, devices, 1);
    tri_calc_write_given(calc, array, text);
    tri_text_add(text, "\n");
    tri_calc_write_machine(calc, text);
    tri_text_add(text, "\n  a device    ");
    write_local_shape(calc, array, text);
    tri_text_add(text, " elements, ");
    write_memory(calc, &local, text);
    tri_text_add(text, "\n  the array   ");
    write_memory(calc, &whole, text);
    tri_text_add(text, " in %d shard%s\n  in total    ", tri_calc_devices(calc, cut),
                 tri_calc_devices(calc, cut) == 1 ? "" : "s");
    write_memory(calc, &total, text);
    tri_text_add(text, " on all devices\n  copies      %d", copies);
    if (copies > 1) {
        tri_text_add(text, ": the devices along ");
        tri_calc_write_axes(calc, copied, text);
        tri_text_add(text, " hold the same");
    }
    tri_text_add(text, "\n");
    if (array->terms) {
        tri_text_add(text, "  terms       %d: the devices along ",
                     tri_calc_devices(calc, array->terms));
        tri_calc_write_axes(calc, array->terms, text);
        tri_text_add(text, " hold terms of a sum that is still to be formed\n");
    }
    write_uneven(calc, array, text);
    tri_text_add(text, "\n");
    tri_calc_draw(calc, array, text);
}

/* ---- moves ---- */

const char *tri_calc_move_name(tri_move_kind kind)
{
    static const char *const names[] = {"slice", "reduce-scatter", "all-reduce", "all-to-all",
                                        "all-gather"};
    return names[kind];
}

void tri_calc_write_move(const tri_calc *calc, const tri_calc_move *move, tri_text *text)
{
    tri_text_add(text, "  %-15s ", tri_calc_move_name(move->kind));
    tri_calc_write_array(calc, &move->before, text);
    tri_text_add(text, " -> ");
    tri_calc_write_array(calc, &move->after, text);
    tri_text_add(text, "\n  %-15s over ", "");
    tri_calc_write_axes(calc, move->axes, text);
    if (move->there) {
        tri_text_add(text, ": there already\n");
        return;
    }
    if (move->kind == TRI_MOVE_SLICE) {
        tri_text_add(text, ": nothing travels\n");
        return;
    }
    tri_text_add(text, ": ");
    tri_calc_write_amount(calc, &move->vector, "B", text);
    tri_text_add(text, ", each device sends ");
    tri_calc_write_amount(calc, &move->sent, "B", text);
    if (move->seconds >= 0) {
        tri_text_add(text, ", ");
        tri_calc_write_seconds(move->seconds, text);
    } else if (calc->link) {
        tri_text_add(text, " at %.4g GB/s",
                     tri_link_ring_bytes_per_s(calc->link, tri_calc_num_axes(move->axes)) * 1e-9);
    }
    tri_text_add(text, "\n");
}

void tri_calc_report_moves(const tri_calc *calc, const tri_calc_array *from,
                           const tri_calc_array *to, const tri_calc_moves *moves, tri_text *text)
{
    tri_calc_write_given(calc, from, text);
    tri_text_add(text, " -> ");
    tri_calc_write_given(calc, to, text);
    tri_text_add(text, "\n");
    tri_calc_write_machine(calc, text);
    tri_text_add(text, "\n");
    for (int i = 0; i < moves->num; i++)
        tri_calc_write_move(calc, &moves->items[i], text);
    if (moves->num == 0)
        tri_text_add(text, "  nothing to do: both lie the same way\n");
}
