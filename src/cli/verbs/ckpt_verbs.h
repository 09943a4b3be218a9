/* The parts of `trireme ckpt`. Each prints and returns an exit code. */
#ifndef TRI_CLI_VERBS_CKPT_VERBS_H
#define TRI_CLI_VERBS_CKPT_VERBS_H

#include <stdbool.h>

/* ckpt_show.c: what a checkpoint holds; the list of those of a run. */
int tri_ckpt_inspect(const char *path, bool json);
/* Whether a path is one, or a folder of them, that tri_ckpt_inspect shows. */
bool tri_ckpt_can_inspect(const char *path);
bool tri_ckpt_has_any(const char *run_dir);
/* A line for each checkpoint of a run; nothing when it has none. */
void tri_ckpt_print_list(const char *run_dir);

/* ckpt_check.c */
int tri_ckpt_verify(const char *path, bool json);
int tri_ckpt_diff(const char *a, const char *b, bool json);

/* ckpt_export.c: the weights of a run or a checkpoint, for others; exactly one of hf_dir and
 * weights is given. */
int tri_ckpt_export(const tri_cli *cli, const char *from, const char *hf_dir, const char *weights);

#endif
