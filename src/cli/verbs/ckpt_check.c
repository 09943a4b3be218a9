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
#include "cli/doc/docs.h"
#include "cli/text.h"
#include "cli/verbs/ckpt_verbs.h"

/* ---- verify ---- */

/* whole: where what is whole is listed; NULL: it is printed. */
static tr_status verify_one(const char *path, json_t *whole, tr_error *err)
{
    tri_checkpoint ckpt;
    uint64_t bytes;
    char size[16], time[32];
    double begin = tri_now_s();
    TRI_TRY(tri_checkpoint_open(&ckpt, path, err));
    tr_status status = tri_checkpoint_verify(&ckpt, TRI_VERIFY_ALL, 0, 1, &bytes, err);
    if (status == TR_OK && whole) {
        json_t *item = tri_doc_item(whole);
        tri_doc_text(item, "path", path);
        tri_doc_count(item, "step", ckpt.manifest.step);
        tri_doc_count(item, "num_tensors", (int64_t)ckpt.manifest.num_tensors);
        tri_doc_count(item, "bytes", (int64_t)bytes);
        tri_doc_number(item, "seconds", tri_now_s() - begin);
    } else if (status == TR_OK)
        tri_text_print(stdout, "%s: whole; step %" PRId64 ", %zu tensors, %s compared in %s\n",
                       path, ckpt.manifest.step, ckpt.manifest.num_tensors,
                       tri_text_bytes((double)bytes, size),
                       tri_text_duration(tri_now_s() - begin, time));
    tri_checkpoint_close(&ckpt);
    return status;
}

/* All of a folder; the last error is the outcome, the others are printed. */
static tr_status verify_all(const char *dir, const tri_ckpt_steps *steps, json_t *whole,
                            tr_error *err)
{
    tr_status outcome = TR_OK;
    for (size_t i = steps->num; i-- > 0;) {
        char *path = tri_ckpt_path(dir, steps->step[i]);
        tr_error why = {0};
        tr_status status = path ? verify_one(path, whole, &why)
                                : tri_fail(&why, TR_ERROR_RUNTIME, "no memory for a path");
        if (status != TR_OK && outcome != TR_OK)
            tri_cli_error("%s", err->message);
        if (status != TR_OK)
            outcome = tri_fail(err, status, "%s", why.message);
        free(path);
    }
    return outcome;
}

int tri_ckpt_verify(const char *path, bool json)
{
    tr_error err = {0}, why = {0};
    json_t *doc = json ? tri_doc_begin() : NULL;
    json_t *whole = json ? tri_doc_list(doc, "whole") : NULL;
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
        status = steps.num > 0 ? verify_all(dir, &steps, whole, &err)
                               : tri_checkpoint_advise(&err, verify_one(found, whole, &err), found);
    tri_ckpt_steps_free(&steps);
    free(found);
    free(inside);
    int code = status == TR_OK ? TRI_EXIT_OK : tri_cli_fail(&err);
    if (json && tri_doc_print(doc, stdout, &why) != TR_OK)
        code = tri_cli_fail(&why);
    return code;
}

/* ---- diff ---- */

typedef struct listing {
    int num;
    json_t *list; /* of a document; NULL: they are printed */
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
    if (list->list) {
        tri_doc_difference(list->list, d);
        return;
    }
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

static tr_status open_named(const char *letter, const char *name, bool quiet, tri_checkpoint *ckpt,
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
    if (status == TR_OK && !quiet)
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

static json_t *begin_json(const tri_checkpoint *a, const tri_checkpoint *b)
{
    json_t *doc = tri_doc_begin();
    const tri_checkpoint *both[] = {a, b};
    for (int i = 0; i < 2; i++) {
        json_t *item = tri_doc_object(doc, i == 0 ? "a" : "b");
        tri_doc_text(item, "path", both[i]->path);
        tri_doc_count(item, "step", both[i]->manifest.step);
        tri_doc_count(item, "num_tensors", (int64_t)both[i]->manifest.num_tensors);
        tri_doc_count(item, "num_shards", (int64_t)both[i]->manifest.num_shards);
    }
    return doc;
}

static int end_json(json_t *doc, const tri_comparison *result)
{
    tr_error err = {0};
    bool same = !result->num_different && !result->num_numbers_different;
    tri_doc_count(doc, "num_tensors", (int64_t)result->num_tensors);
    tri_doc_count(doc, "elements", result->num_elements);
    tri_doc_count(doc, "tensors_different", (int64_t)result->num_different);
    tri_doc_count(doc, "numbers_different", (int64_t)result->num_numbers_different);
    tri_doc_flag(doc, "identical", same);
    if (tri_doc_print(doc, stdout, &err) != TR_OK)
        return tri_cli_fail(&err);
    return same ? TRI_EXIT_OK : TRI_EXIT_FAILED;
}

int tri_ckpt_diff(const char *first, const char *second, bool json)
{
    tr_error err = {0};
    tri_checkpoint a, b;
    if (open_named("A", first, json, &a, &err) != TR_OK)
        return tri_cli_fail(&err);
    if (open_named("B", second, json, &b, &err) != TR_OK) {
        tri_checkpoint_close(&a);
        return tri_cli_fail(&err);
    }
    listing list = {0};
    tri_comparison result;
    json_t *doc = json ? begin_json(&a, &b) : NULL;
    list.list = json ? tri_doc_list(doc, "differences") : NULL;
    tr_status status = tri_checkpoint_compare(&a, &b, print_difference, &list, &result, &err);
    tri_checkpoint_close(&a);
    tri_checkpoint_close(&b);
    if (status != TR_OK) {
        json_decref(doc);
        return tri_cli_fail(&err);
    }
    return json ? end_json(doc, &result) : print_verdict(&result);
}
