#include "ckpt/compare.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNK = 1 << 20 }; /* elements of each that are in memory at a time */

typedef struct comparing {
    tri_checkpoint *a, *b;
    void (*fn)(void *context, const tri_difference *difference);
    void *context;
    float *room;
    tri_comparison *result;
} comparing;

static void compare_number(const comparing *c, const char *name, double a, double b)
{
    if (a == b)
        return;
    c->result->num_numbers_different++;
    tri_difference d = {.kind = TRI_DIFFERENCE_NUMBER, .name = name, .a = a, .b = b};
    c->fn(c->context, &d);
}

static void compare_numbers(const comparing *c)
{
    const tri_manifest *a = &c->a->manifest, *b = &c->b->manifest;
    compare_number(c, "step", (double)a->step, (double)b->step);
    for (size_t i = 0; i < a->num_numbers; i++)
        compare_number(c, a->numbers[i].name, a->numbers[i].value,
                       tri_manifest_number(b, a->numbers[i].name, (double)NAN));
    for (size_t i = 0; i < b->num_numbers; i++)
        if (isnan(tri_manifest_number(a, b->numbers[i].name, (double)NAN)))
            compare_number(c, b->numbers[i].name, (double)NAN, b->numbers[i].value);
}

static void compare_chunk(const float *a, const float *b, int64_t at, int64_t count,
                          tri_difference *d)
{
    if (memcmp(a, b, (size_t)count * sizeof *a) == 0)
        return;
    for (int64_t i = 0; i < count; i++) {
        if (memcmp(&a[i], &b[i], sizeof *a) == 0)
            continue;
        if (d->count++ == 0) {
            d->first = at + i;
            d->first_a = a[i];
            d->first_b = b[i];
        }
        double apart = fabs((double)a[i] - (double)b[i]);
        if (isnan(apart) || apart > d->largest)
            d->largest = apart;
    }
}

static tr_status compare_elements(const comparing *c, const tri_ckpt_tensor *tensor, bool *same,
                                  tr_error *err)
{
    tri_region part = tri_region_whole(tensor->num_dims, tensor->dim);
    tri_difference d = {.kind = TRI_DIFFERENCE_ELEMENTS, .name = tensor->name, .of = part.count};
    for (int64_t at = 0; at < d.of; at += part.count) {
        part.first = at;
        part.count = d.of - at < CHUNK ? d.of - at : CHUNK;
        TRI_TRY(tri_checkpoint_read(c->a, tensor->name, &part, c->room, err));
        TRI_TRY(tri_checkpoint_read(c->b, tensor->name, &part, c->room + CHUNK, err));
        compare_chunk(c->room, c->room + CHUNK, at, part.count, &d);
    }
    c->result->num_elements += d.of;
    *same = d.count == 0;
    if (!*same)
        c->fn(c->context, &d);
    return TR_OK;
}

static tr_status compare_tensor(const comparing *c, const tri_ckpt_tensor *a, tr_error *err)
{
    const tri_ckpt_tensor *b = tri_manifest_find(&c->b->manifest, a->name);
    tri_difference d = {.kind = TRI_DIFFERENCE_MISSING, .name = a->name, .a = 1};
    bool same = false;
    c->result->num_tensors++;
    if (!b) {
        c->fn(c->context, &d);
    } else if (a->num_dims != b->num_dims || memcmp(a->dim, b->dim, sizeof a->dim) != 0) {
        d.kind = TRI_DIFFERENCE_SHAPE;
        c->fn(c->context, &d);
    } else {
        TRI_TRY(compare_elements(c, a, &same, err));
    }
    c->result->num_different += !same;
    return TR_OK;
}

tr_status tri_checkpoint_compare(tri_checkpoint *a, tri_checkpoint *b,
                                 void (*fn)(void *context, const tri_difference *difference),
                                 void *context, tri_comparison *result, tr_error *err)
{
    *result = (tri_comparison){0};
    comparing c = {.a = a, .b = b, .fn = fn, .context = context, .result = result};
    c.room = malloc(2 * (size_t)CHUNK * sizeof *c.room);
    if (!c.room)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory to compare checkpoints");
    compare_numbers(&c);
    tr_status status = TR_OK;
    for (size_t i = 0; i < a->manifest.num_tensors && status == TR_OK; i++)
        status = compare_tensor(&c, &a->manifest.tensors[i], err);
    for (size_t i = 0; i < b->manifest.num_tensors && status == TR_OK; i++) {
        const char *name = b->manifest.tensors[i].name;
        if (tri_manifest_find(&a->manifest, name))
            continue;
        result->num_tensors++;
        result->num_different++;
        tri_difference d = {.kind = TRI_DIFFERENCE_MISSING, .name = name, .b = 1};
        fn(context, &d);
    }
    free(c.room);
    return status;
}
