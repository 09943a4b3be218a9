/* Ranks agree on a checkpoint: which one is meant, and whether it is whole. Each reads a share of
 * its bytes; what one of them finds all of them know. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ckpt/checkpoint.h"
#include "train/ckpt/checkpoint_parts.h"

/* How a rank fared, the worse the higher. Damage is what must never be taken for granted: it comes
 * last before good, so that a rank that could not read has the word. */
enum { GOOD, DAMAGED, REFUSED, FAILED };

static int code_of(tr_status status)
{
    return status == TR_OK              ? GOOD
           : status == TR_ERROR_DAMAGED ? DAMAGED
           : status == TR_ERROR_INPUT   ? REFUSED
                                        : FAILED;
}

static tr_status status_of(int code)
{
    static const tr_status statuses[] = {TR_OK, TR_ERROR_DAMAGED, TR_ERROR_INPUT, TR_ERROR_RUNTIME};
    return statuses[code];
}

typedef struct agreed {
    int fared; /* of the worst */
    int rank;  /* the first of those */
} agreed;

/* The worst of all ranks decides, and its message becomes everybody's. */
static tr_status agree(tri_ranks *ranks, tr_status own, tr_error *message, agreed *v, tr_error *err)
{
    int64_t *codes = calloc((size_t)ranks->size, sizeof *codes);
    *v = (agreed){.fared = FAILED};
    if (!codes)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for %d ranks", ranks->size);
    tr_status status = tri_checkpoint_gather(ranks, code_of(own), codes, err);
    for (int r = 0; status == TR_OK && r < ranks->size; r++)
        v->rank = codes[r] > codes[v->rank] ? r : v->rank;
    if (status == TR_OK)
        v->fared = (int)codes[v->rank];
    free(codes);
    if (status == TR_OK && v->fared != GOOD && ranks->size > 1)
        status = tr_broadcast(tr_comm_world(ranks->comm), message->message, sizeof message->message,
                              TR_U8, v->rank, err);
    return status;
}

/* Rank 0 renames what is damaged, so it must have seen it itself: another rank may look at another
 * directory of that name, or through a bad cable. `own` is what rank 0 found in that rank's place,
 * TR_OK on the others. */
static tr_status confirm(tri_ranks *ranks, tr_status own, tr_error *own_why, tr_error *why,
                         agreed *v, tr_error *err)
{
    agreed second;
    TRI_TRY(agree(ranks, own, own_why, &second, err));
    if (second.fared == GOOD) {
        v->fared = FAILED;
        tri_fail_prefix(why, TR_ERROR_RUNTIME,
                        "rank %d cannot go on from a checkpoint that rank 0 finds whole (all ranks "
                        "must see the same run.dir, on disks and over cables that can be trusted)",
                        v->rank);
    } else if (second.fared != DAMAGED) {
        *v = second;
        *why = *own_why;
    }
    return TR_OK;
}

tr_status tri_checkpoint_open_together(tri_ranks *ranks, const char *path, tri_checkpoint *ckpt,
                                       tr_error *err)
{
    tr_error why = {0}, own = {0};
    agreed v;
    tr_status status = tri_checkpoint_open(ckpt, path, &why);
    bool open = status == TR_OK;
    tr_status met = agree(ranks, status, &why, &v, err);
    if (met == TR_OK && v.fared == DAMAGED && v.rank != 0)
        met = confirm(ranks, TR_OK, &own, &why, &v, err);
    double bytes = 0;
    for (size_t f = 0; open && f < ckpt->manifest.num_files; f++)
        bytes += (double)ckpt->manifest.files[f].bytes;
    int rounds = 1 + (int)(bytes / (TRI_CHECKPOINT_ROUND_BYTES * ranks->size)),
        parts = rounds * ranks->size;
    for (int r = 0; r < rounds && met == TR_OK && v.fared == GOOD; r++) {
        int first = r * ranks->size;
        status =
            tri_checkpoint_verify(ckpt, TRI_VERIFY_ALL, first + ranks->rank, parts, NULL, &why);
        met = agree(ranks, status, &why, &v, err);
        if (met != TR_OK || v.fared != DAMAGED || v.rank == 0)
            continue;
        status = ranks->rank == 0 ? tri_checkpoint_verify(ckpt, TRI_VERIFY_ALL, first + v.rank,
                                                          parts, NULL, &own)
                                  : TR_OK;
        met = confirm(ranks, status, &own, &why, &v, err);
    }
    if (open && (met != TR_OK || v.fared != GOOD))
        tri_checkpoint_close(ckpt);
    TRI_TRY(met);
    return v.fared == GOOD ? TR_OK : tri_fail(err, status_of(v.fared), "%s", why.message);
}

tr_status tri_checkpoint_locate_together(tri_ranks *ranks, const char *path, char **at,
                                         tr_error *err)
{
    struct {
        tr_error why;
        char path[4096];
    } *found = calloc(1, sizeof *found);
    if (!found)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for a path");
    tr_status status = TR_OK;
    *at = NULL;
    if (ranks->rank == 0) {
        found->why.status = tri_checkpoint_locate(path, at, &found->why);
        snprintf(found->path, sizeof found->path, "%s", *at ? *at : "");
        free(*at);
    }
    if (ranks->size > 1)
        status = tr_broadcast(tr_comm_world(ranks->comm), found, sizeof *found, TR_U8, 0, err);
    if (status == TR_OK && found->why.status != TR_OK)
        status = tri_fail(err, found->why.status, "%s", found->why.message);
    *at = status == TR_OK ? strdup(found->path) : NULL;
    free(found);
    if (status == TR_OK && !*at)
        status = tri_fail(err, TR_ERROR_RUNTIME, "no memory for a path");
    return status;
}
