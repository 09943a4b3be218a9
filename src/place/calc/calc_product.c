/* Products. The letters say which dims are contracted; where everything lies is decided by the rule
 * of the pass, one axis after the other. */
#include "graph/op_table.h"
#include "place/calc/calc.h"

#include <string.h>

/* The dims of both operands in the order in which the rule counts them: free then contracted for a,
 * contracted then free for b. */
typedef struct multiplier {
    tri_calc *calc;
    const tri_calc_array *target; /* or NULL */
    int dims_a[TRI_CALC_DIMS], dims_b[TRI_CALC_DIMS];
    tri_product product;
    int num_free_b;
    tri_spot out[TRI_CALC_AXES];
} multiplier;

static tr_status complain(tri_calc *calc, int at, const char *name, const char *what, tr_error *err)
{
    calc->error_at = at;
    return tri_fail(err, TR_ERROR_INPUT, "character %d: %s %s", at + 1, name, what);
}

/* Pieces of a contracted dim must be the same in both operands, over the axes that both have. */
static bool pieces_meet(const tri_calc_dim *a, const tri_calc_dim *b)
{
    int shared = 0;
    for (int i = 0; i < a->num_cuts; i++)
        for (int j = 0; j < b->num_cuts; j++)
            shared += a->cuts[i] == b->cuts[j];
    return memcmp(a->cuts, b->cuts, (size_t)shared * sizeof *a->cuts) == 0;
}

static tr_status sort_dims(multiplier *m, const tri_calc_array *a, const tri_calc_array *b,
                           tr_error *err)
{
    tri_product *p = &m->product;
    int num_a = 0, num_b = 0;
    for (int d = 0; d < a->rank; d++)
        if (tri_calc_find_dim(b, a->dims[d].letter) < 0)
            m->dims_a[num_a++] = d;
    p->num_free_a = p->contract_a = num_a;
    for (int d = 0; d < a->rank; d++) {
        int other = tri_calc_find_dim(b, a->dims[d].letter);
        if (other < 0)
            continue;
        const char *name = m->calc->letters[a->dims[d].letter].name;
        if (m->target && tri_calc_find_dim(m->target, a->dims[d].letter) >= 0)
            return complain(m->calc, b->dims[other].at, name,
                            "stands in both operands and in the result; a letter of both is "
                            "summed over, so it cannot remain",
                            err);
        if (!pieces_meet(&a->dims[d], &b->dims[other]))
            return complain(
                m->calc, b->dims[other].at, name,
                "is cut into pieces that do not meet those of the other operand; cut it "
                "over the same axes, in the same order",
                err);
        m->dims_a[num_a++] = d;
        m->dims_b[num_b++] = other;
    }
    p->num_contracted = p->free_b = num_b;
    for (int d = 0; d < b->rank; d++)
        if (tri_calc_find_dim(a, b->dims[d].letter) < 0)
            m->dims_b[num_b++] = d;
    m->num_free_b = b->rank - p->num_contracted;
    if (p->num_free_a + m->num_free_b > TRI_CALC_DIMS)
        return complain(m->calc, b->at, b->name, "gives a product with more than 6 dims", err);
    return TR_OK;
}

static void drop_axis(tri_calc_array *array, int axis)
{
    for (int d = 0; d < array->rank; d++) {
        tri_calc_dim *dim = &array->dims[d];
        int kept = 0;
        for (int i = 0; i < dim->num_cuts; i++)
            if (dim->cuts[i] != axis)
                dim->cuts[kept++] = dim->cuts[i];
        dim->num_cuts = kept;
    }
}

/* Rows and columns are both cut over the axis: the result can keep one. What the target wants
 * decides, otherwise the smaller operand is gathered, and a when that is not known. */
static bool gathers_b(const multiplier *m, const tri_calc_array *a, const tri_calc_array *b,
                      int axis)
{
    const tri_calc *calc = m->calc;
    for (int d = 0; m->target && d < m->target->rank; d++)
        for (int i = 0; i < m->target->dims[d].num_cuts; i++)
            if (m->target->dims[d].cuts[i] == axis)
                return tri_calc_find_dim(a, m->target->dims[d].letter) >= 0;
    tri_amount bytes_a = tri_calc_bytes(calc, a, false), bytes_b = tri_calc_bytes(calc, b, false);
    return tri_amount_alike(&bytes_a, &bytes_b) &&
           bytes_b.num / bytes_b.den < bytes_a.num / bytes_a.den;
}

static void ask_rule(multiplier *m, tri_calc_array *a, tri_calc_array *b)
{
    for (int axis = 0; axis < m->calc->num_axes; axis++) {
        tri_placement at_a = tri_calc_placement(a, m->dims_a);
        tri_placement at_b = tri_calc_placement(b, m->dims_b);
        tri_spot in[2] = {tri_placement_spot(&at_a, axis), tri_placement_spot(&at_b, axis)};
        bool cut[2] = {in[0].kind == TRI_SPOT_CUT, in[1].kind == TRI_SPOT_CUT};
        m->product.gather_b = cut[0] && cut[1] && gathers_b(m, a, b, axis);
        tri_place_product(&m->product, in, &m->out[axis]);
        if (cut[0] && in[0].kind == TRI_SPOT_WHOLE)
            drop_axis(a, axis);
        if (cut[1] && in[1].kind == TRI_SPOT_WHOLE)
            drop_axis(b, axis);
    }
}

/* What the rule wants gathered takes along whatever is cut off after it. False: nothing. */
static bool take_along(const tri_calc *calc, const tri_calc_array *from, tri_calc_array *to)
{
    tri_placement at = tri_calc_placement(from, NULL);
    unsigned lost = tri_calc_cut_axes(from) & ~tri_calc_cut_axes(to);
    unsigned along = tri_placement_along(&at, (tri_factor_set)lost);
    for (int axis = 0; axis < calc->num_axes; axis++)
        if (along & 1u << axis)
            drop_axis(to, axis);
    return along != lost;
}

/* Asks again when more is gathered than the rule said: what it sees is different then. */
static void apply_rule(multiplier *m, tri_calc_array *a, tri_calc_array *b)
{
    const tri_calc_array from_a = *a, from_b = *b;
    bool more = true;
    while (more) {
        ask_rule(m, a, b);
        more = take_along(m->calc, &from_a, a);
        more |= take_along(m->calc, &from_b, b);
    }
}

/* The dims of the result, as the rule numbers them, with the axes it says they are cut over, in the
 * order in which the operand has them. */
static void make_result(const multiplier *m, const tri_calc_array *a, const tri_calc_array *b,
                        tri_calc_array *c)
{
    const tri_product *p = &m->product;
    c->rank = p->num_free_a + m->num_free_b;
    for (int i = 0; i < c->rank; i++) {
        const tri_calc_dim *dim = i < p->num_free_a
                                      ? &a->dims[m->dims_a[i]]
                                      : &b->dims[m->dims_b[p->free_b + i - p->num_free_a]];
        c->dims[i] = (tri_calc_dim){.letter = dim->letter, .at = dim->at};
        for (int k = 0; k < dim->num_cuts; k++) {
            const tri_spot *out = &m->out[dim->cuts[k]];
            if (out->kind == TRI_SPOT_CUT && out->dim == i)
                c->dims[i].cuts[c->dims[i].num_cuts++] = dim->cuts[k];
        }
    }
    for (int axis = 0; axis < m->calc->num_axes; axis++)
        if (m->out[axis].kind == TRI_SPOT_TERMS)
            c->terms |= 1u << axis;
}

static void count_work(const multiplier *m, tri_calc_product *product)
{
    const tri_calc *calc = m->calc;
    const tri_calc_array *a = &product->a;
    product->flops = tri_amount_scaled(tri_calc_elements(calc, &product->c, false), 2, 1);
    for (int i = 0; i < m->product.num_contracted; i++)
        product->flops = tri_calc_times_dim(calc, product->flops,
                                            &a->dims[m->dims_a[m->product.contract_a + i]]);
    const tri_calc_array *arrays[3] = {a, &product->b, &product->c};
    for (int i = 0; i < 3; i++)
        product->traffic[i] = tri_calc_bytes(calc, arrays[i], false);
}

tr_status tri_calc_multiply(tri_calc *calc, const tri_calc_array *a, const tri_calc_array *b,
                            const tri_calc_array *target, const char *name,
                            tri_calc_product *product, tr_error *err)
{
    multiplier m = {.calc = calc, .target = target};
    *product = (tri_calc_product){.from_a = *a, .from_b = *b, .a = *a, .b = *b};
    product->has_target = target;
    if (target)
        product->target = *target;
    product->a.terms = product->b.terms = 0; /* a product is not linear in both: sums end first */
    TRI_TRY(sort_dims(&m, a, b, err));
    apply_rule(&m, &product->a, &product->b);
    TRI_TRY(tri_calc_move_to(calc, a, &product->a, &product->before, err));
    TRI_TRY(tri_calc_move_to(calc, b, &product->b, &product->before, err));
    strncpy(product->c.name, name, TRI_CALC_NAME - 1);
    product->c.at = target ? target->at : a->at;
    make_result(&m, &product->a, &product->b, &product->c);
    count_work(&m, product);
    return target ? tri_calc_move_to(calc, &product->c, target, &product->after, err) : TR_OK;
}

double tri_calc_compute_seconds(const tri_calc *calc, const tri_calc_product *product)
{
    double flops;
    if (!calc->device || calc->device->dense[calc->rate] <= 0 ||
        !tri_amount_known(&product->flops, &flops))
        return -1;
    return flops / calc->device->dense[calc->rate];
}

double tri_calc_memory_seconds(const tri_calc *calc, const tri_calc_product *product)
{
    double sum = 0, bytes;
    for (int i = 0; i < 3; i++) {
        if (!calc->device || !tri_amount_known(&product->traffic[i], &bytes))
            return -1;
        sum += bytes;
    }
    return sum / calc->device->memory_bytes_per_s;
}
