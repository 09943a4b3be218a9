/* trireme ckpt verify, and trireme ckpt diff. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/text.h"
#include "ckpt/compare.h"
#include "cli/cli.h"
#include "cli/text.h"
#include "cli/verbs/ckpt_verbs.h"

/* ---- verify ---- */

static tr_status verify_one(const char *path, tr_error *err)
{
    tri_checkpoint ckpt;
    uint64_t bytes;
    char size[16], time[32];
    double begin = tri_now_s();
    TRI_TRY(tri_checkpoint_open(&ckpt, path, err));
    tr_status status = tri_checkpoint_verify(&ckpt, TRI_VERIFY_ALL, 0, 1, &bytes, err);
    if (status == TR_OK)
        tri_text_print(stdout, "%s: whole; step %" PRId64 ", %zu tensors, %s compared in %s\n",
                       path, ckpt.manifest.step, ckpt.manifest.num_tensors,
                       tri_text_bytes((double)bytes, size),
                       tri_text_duration(tri_now_s() - begin, time));
    tri_checkpoint_close(&ckpt);
    return status;
}

/* All of a folder; the last error is the outcome, the others are printed. */
static tr_status verify_all(const char *dir, const tri_ckpt_steps *steps, tr_error *err)
{
    tr_status outcome = TR_OK;
    for (size_t i = steps->num; i-- > 0;) {
        char *path = tri_ckpt_path(dir, steps->step[i]);
        tr_error why = {0};
        tr_status status = path ? verify_one(path, &why)
                                : tri_fail(&why, TR_ERROR_RUNTIME, "no memory for a path");
        if (status != TR_OK && outcome != TR_OK)
            tri_cli_error("%s", err->message);
        if (status != TR_OK)
            outcome = tri_fail(err, status, "%s", why.message);
        free(path);
    }
    return outcome;
}

int tri_ckpt_verify(const char *path)
{
    tr_error err = {0};
    char *inside = tri_path_join(path, "ckpt"), *found = NULL;
    tri_ckpt_steps steps = {0};
    tr_status status = inside ? tri_checkpoint_locate(path, &found, &err)
                              : tri_fail(&err, TR_ERROR_RUNTIME, "no memory for a path");
    const char *dir = path;
    if (status == TR_OK && !tri_checkpoint_is_dir(path)) {
        status = tri_ckpt_steps_read(&steps, dir, &err);
        if (status == TR_OK && steps.num == 0)
            status = tri_ckpt_steps_read(&steps, dir = inside, &err);
    }
    if (status == TR_OK)
        status = steps.num > 0 ? verify_all(dir, &steps, &err)
                               : tri_checkpoint_advise(&err, verify_one(found, &err), found);
    tri_ckpt_steps_free(&steps);
    free(found);
    free(inside);
    return status == TR_OK ? TRI_EXIT_OK : tri_cli_fail(&err);
}

/* ---- diff ---- */

typedef struct listing {
    int num;
} listing;

enum { MOST_LINES = 40 };

static void print_number(const tri_difference *d)
{
    tri_text_print(stdout, "  %-44s ", d->name);
    if (isnan(d->a) || isnan(d->b))
        printf("only in %s: %.10g\n", isnan(d->a) ? "B" : "A", isnan(d->a) ? d->b : d->a);
    else
        printf("A %.10g, B %.10g\n", d->a, d->b);
}

static void print_difference(void *context, const tri_difference *d)
{
    listing *list = context;
    if (++list->num == MOST_LINES + 1)
        printf("  ... and more\n");
    if (list->num > MOST_LINES)
        return;
    switch (d->kind) {
    case TRI_DIFFERENCE_NUMBER:
        print_number(d);
        break;
    case TRI_DIFFERENCE_MISSING:
        tri_text_print(stdout, "  %-44s only in %s\n", d->name, d->a != 0 ? "A" : "B");
        break;
    case TRI_DIFFERENCE_SHAPE:
        tri_text_print(stdout, "  %-44s has another shape\n", d->name);
        break;
    case TRI_DIFFERENCE_ELEMENTS:
        tri_text_print(
            stdout,
            "  %-44s %" PRId64 " of %" PRId64 " elements differ, by %.3g at most; the first is "
            "number %" PRId64 ": %.9g, %.9g\n",
            d->name, d->count, d->of, d->largest, d->first, (double)d->first_a, (double)d->first_b);
    }
}

static tr_status open_named(const char *letter, const char *name, tri_checkpoint *ckpt,
                            tr_error *err)
{
    char *path;
    TRI_TRY(tri_checkpoint_locate(name, &path, err));
    tr_status status = tri_checkpoint_open(ckpt, path, err);
    if (status == TR_OK) {
        status = tri_checkpoint_verify(ckpt, TRI_VERIFY_ALL, 0, 1, NULL, err);
        if (status != TR_OK)
            tri_checkpoint_close(ckpt);
    }
    tri_checkpoint_advise(err, status, path);
    if (status == TR_OK)
        tri_text_print(stdout, "%s  %s: step %" PRId64 ", %zu tensors in %zu shards\n", letter,
                       path, ckpt->manifest.step, ckpt->manifest.num_tensors,
                       ckpt->manifest.num_shards);
    free(path);
    return status;
}

static int print_verdict(const tri_comparison *result)
{
    char count[16];
    tri_text_count((double)result->num_elements, count);
    if (result->num_different > 0)
        printf("different: %zu of %zu tensors\n", result->num_different, result->num_tensors);
    else if (result->num_numbers_different > 0)
        printf("all %zu tensors are identical (%s elements); %zu number%s\n", result->num_tensors,
               count, result->num_numbers_different,
               result->num_numbers_different == 1 ? " differs" : "s differ");
    else
        printf("identical: %zu tensors, %s elements, every bit\n", result->num_tensors, count);
    return result->num_different || result->num_numbers_different ? TRI_EXIT_FAILED : TRI_EXIT_OK;
}

int tri_ckpt_diff(const char *first, const char *second)
{
    tr_error err = {0};
    tri_checkpoint a, b;
    if (open_named("A", first, &a, &err) != TR_OK)
        return tri_cli_fail(&err);
    if (open_named("B", second, &b, &err) != TR_OK) {
        tri_checkpoint_close(&a);
        return tri_cli_fail(&err);
    }
    listing list = {0};
    tri_comparison result;
    tr_status status = tri_checkpoint_compare(&a, &b, print_difference, &list, &result, &err);
    tri_checkpoint_close(&a);
    tri_checkpoint_close(&b);
    return status == TR_OK ? print_verdict(&result) : tri_cli_fail(&err);
}
