/* trireme ckpt inspect, for checkpoints. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fs.h"
#include "base/text.h"
#include "ckpt/checkpoint.h"
#include "ckpt/ckpt_best.h"
#include "cli/cli.h"
#include "cli/doc/docs.h"
#include "cli/text.h"
#include "cli/verbs/ckpt_verbs.h"

static void print_tensor(const tri_ckpt_tensor *t)
{
    char shape[200] = "[", bytes[16];
    double count = 1;
    for (int d = 0; d < t->num_dims; d++) {
        size_t length = strlen(shape);
        snprintf(shape + length, sizeof shape - length, "%s%" PRId64, d ? ", " : "", t->dim[d]);
        count *= (double)t->dim[d];
    }
    strncat(shape, "]", sizeof shape - strlen(shape) - 1);
    tri_text_print(stdout, "  %-44s %-7s %-20s %10s  %4zu shard%s\n", t->name,
                   tri_ckpt_kind_name(t->kind), shape, tri_text_bytes(4 * count, bytes),
                   t->num_shards, t->num_shards == 1 ? "" : "s");
}

static void print_checkpoint(const tri_checkpoint *ckpt)
{
    const tri_manifest *m = &ckpt->manifest;
    char bytes[16], count[16];
    double weights = 0;
    tri_text_print(stdout, "%s: checkpoint after %" PRId64 " step%s\n", ckpt->path, m->step,
                   m->step == 1 ? "" : "s");
    for (size_t i = 0; i < m->num_numbers; i++)
        tri_text_print(stdout, "  number    %s = %.10g\n", m->numbers[i].name, m->numbers[i].value);
    for (size_t i = 0; i < m->num_files; i++)
        tri_text_print(stdout, "  file      %-32s %10s\n", m->files[i].name,
                       tri_text_bytes((double)m->files[i].bytes, bytes));
    for (size_t i = 0; i < m->num_tensors; i++) {
        const tri_ckpt_tensor *t = &m->tensors[i];
        tri_region whole = tri_region_whole(t->num_dims, t->dim);
        weights += t->kind == TRI_CKPT_WEIGHT ? (double)whole.count : 0;
        print_tensor(t);
    }
    size_t ranks = tri_ckpt_num_writers(m);
    printf("%zu tensors in %zu shards, %s parameters, %s, written by %zu rank%s\n", m->num_tensors,
           m->num_shards, tri_text_count(weights, count),
           tri_text_bytes(tri_ckpt_num_bytes(m), bytes), ranks, ranks == 1 ? "" : "s");
}

static void print_row(const char *dir, int64_t step, int64_t best)
{
    char *path = tri_ckpt_path(dir, step), bytes[16];
    tri_checkpoint ckpt;
    tr_error err = {0};
    if (!path)
        return;
    tr_status status = tri_checkpoint_open(&ckpt, path, &err);
    if (status != TR_OK) {
        tri_text_print(stdout, "  %-40s %s: %s\n", path,
                       status == TR_ERROR_DAMAGED ? "damaged" : "unreadable", err.message);
    } else {
        size_t ranks = tri_ckpt_num_writers(&ckpt.manifest);
        double loss = tri_manifest_number(&ckpt.manifest, TRI_CKPT_EVAL_LOSS, NAN);
        char held_out[64] = "";
        if (!isnan(loss))
            snprintf(held_out, sizeof held_out, "  held-out loss %.4f%s", loss,
                     step == best ? ", the best" : "");
        tri_text_print(stdout, "  %-40s step %-8" PRId64 " %10s  by %zu rank%s%s\n", path, step,
                       tri_text_bytes(tri_ckpt_num_bytes(&ckpt.manifest), bytes), ranks,
                       ranks == 1 ? "" : "s", held_out);
        tri_checkpoint_close(&ckpt);
    }
    free(path);
}

/* Returns how many there are. */
static size_t print_list(const char *dir)
{
    tri_ckpt_steps steps;
    if (tri_ckpt_steps_read(&steps, dir, NULL) != TR_OK)
        return 0;
    size_t num = steps.num;
    int64_t best;
    double loss;
    if (tri_ckpt_best(dir, &best, &loss, NULL) != TR_OK)
        best = -1;
    for (size_t i = num; i-- > 0;)
        print_row(dir, steps.step[i], best);
    tri_ckpt_steps_free(&steps);
    return num;
}

bool tri_ckpt_has_any(const char *run_dir)
{
    char *found = NULL;
    bool any = tri_checkpoint_look(run_dir, &found, NULL) == TR_OK && found;
    free(found);
    return any;
}

void tri_ckpt_print_list(const char *run_dir)
{
    char *dir = tri_path_join(run_dir, "ckpt");
    if (dir && tri_ckpt_has_any(run_dir)) {
        printf("checkpoints\n");
        print_list(dir);
    }
    free(dir);
}

static bool is_folder(const char *path)
{
    tri_ckpt_steps steps;
    bool is = tri_ckpt_steps_read(&steps, path, NULL) == TR_OK && steps.num > 0;
    tri_ckpt_steps_free(&steps);
    return is;
}

bool tri_ckpt_can_inspect(const char *path)
{
    return tri_checkpoint_is_dir(path) || is_folder(path);
}

/* A checkpoint, or a folder of them. */
static tr_status print_json(const char *path, const tri_checkpoint *ckpt, tr_error *err)
{
    json_t *doc = tri_doc_begin();
    tri_doc_text(doc, "kind", ckpt ? "checkpoint" : "checkpoints");
    if (ckpt)
        tri_doc_checkpoint(doc, ckpt);
    tr_status status = ckpt ? TR_OK : tri_doc_checkpoints(doc, path, err);
    if (status == TR_OK)
        return tri_doc_print(doc, stdout, err);
    json_decref(doc);
    return status;
}

int tri_ckpt_inspect(const char *path, bool json)
{
    tr_error err = {0};
    tri_checkpoint ckpt;
    if (!tri_checkpoint_is_dir(path) && json)
        return print_json(path, NULL, &err) == TR_OK ? TRI_EXIT_OK : tri_cli_fail(&err);
    if (!tri_checkpoint_is_dir(path)) {
        size_t num = print_list(path);
        printf("%zu checkpoint%s; `trireme ckpt inspect %s/step-N` shows what one holds\n", num,
               num == 1 ? "" : "s", path);
        return TRI_EXIT_OK;
    }
    if (tri_checkpoint_advise(&err, tri_checkpoint_open(&ckpt, path, &err), path) != TR_OK)
        return tri_cli_fail(&err);
    tr_status status = json ? print_json(path, &ckpt, &err) : TR_OK;
    if (!json)
        print_checkpoint(&ckpt);
    tri_checkpoint_close(&ckpt);
    return status == TR_OK ? TRI_EXIT_OK : tri_cli_fail(&err);
}
