/* The files that a training run has in its directory from the start. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fs.h"
#include "ckpt/hf/hf.h"
#include "data/tokenizer/tokenizer.h"
#include "train/log/logs_observer.h"
#include "train/log/metrics_observer.h"
#include "train/run/run.h"

tr_status tri_run_in_dir(const tri_run *r, const char *name, char **path, tr_error *err)
{
    *path = tri_path_join(r->config.dir, name);
    return *path ? TR_OK : tri_fail(err, TR_ERROR_RUNTIME, "no memory for a path");
}

/* Whether tokens mean in this run what they mean in the directory that its model comes from. */
static tr_status has_tokens_of(const char *dir, const tri_tokenizer *tokenizer, bool *same,
                               tr_error *err)
{
    tri_tokenizer *theirs = NULL;
    *same = !tokenizer;
    if (!tokenizer || !tri_tokenizer_is_dir(dir))
        return TR_OK;
    TRI_TRY(tri_tokenizer_open(dir, &theirs, err));
    uint64_t of_theirs, of_ours;
    tr_status status = tri_tokenizer_fingerprint(theirs, &of_theirs, err);
    if (status == TR_OK)
        status = tri_tokenizer_fingerprint(tokenizer, &of_ours, err);
    *same = status == TR_OK && of_theirs == of_ours;
    tri_tokenizer_close(theirs);
    return status;
}

/* What lies beside the weights of a model of Hugging Face stays with it as it is. */
static tr_status keep_companions(tri_run *r, const tri_tokenizer *tokenizer, tr_error *err)
{
    const char *from = r->config.model_from;
    bool same = false;
    if (!tri_hf_is_dir(from))
        return TR_OK;
    TRI_TRY(has_tokens_of(from, tokenizer, &same, err));
    return same ? tri_hf_keep(from, r->config.dir, err) : TR_OK;
}

/* What the tokens of this run mean, for whoever generates with it or exports it. */
static tr_status keep_tokenizer(tri_run *r, tr_error *err)
{
    static const char *const names[] = {"tokenizer.json", "special_tokens_map.json"};
    tri_tokenizer *tokenizer = NULL;
    if (r->session->data)
        TRI_TRY(tri_data_tokenizer(&r->session->config.data, &tokenizer, err));
    tr_status status = tokenizer ? tri_tokenizer_save_dir(tokenizer, r->config.dir, err) : TR_OK;
    for (int i = 0; i < 2 && !tokenizer && status == TR_OK; i++) { /* of an earlier run */
        char *path;
        status = tri_run_in_dir(r, names[i], &path, err);
        if (status == TR_OK)
            (void)unlink(path);
        free(path);
    }
    if (status == TR_OK)
        status = keep_companions(r, tokenizer, err);
    r->has_tokenizer = tokenizer != NULL;
    tri_tokenizer_close(tokenizer);
    return status;
}

/* Lines of comments before the settings of the run that goes on. */
static char *read_head(const char *path)
{
    char *text = NULL;
    size_t num_bytes, length = 0;
    if (tri_file_read(path, &text, &num_bytes, NULL) != TR_OK)
        return NULL;
    while (text[length] == '#')
        length += strcspn(text + length, "\n") + (strchr(text + length, '\n') != NULL);
    text[length] = 0;
    return text;
}

static tr_status write_all(const tri_run *r, const char *head, const char *path, tr_error *err)
{
    char *text = NULL;
    size_t num_bytes = 0;
    FILE *memory = open_memstream(&text, &num_bytes);
    if (!memory)
        return tri_fail(err, TR_ERROR_RUNTIME, "out of memory while writing %s", path);
    fputs(head, memory);
    tr_status status = tr_settings_write_yaml(r->config.settings, memory, err);
    if (fclose(memory) != 0 && status == TR_OK)
        status = tri_fail(err, TR_ERROR_RUNTIME, "out of memory while writing %s", path);
    if (status == TR_OK)
        status = tri_file_replace(path, text, num_bytes, err);
    free(text);
    return status;
}

static tr_status write_config(const tri_run *r, tr_error *err)
{
    char *path, *old = NULL;
    TRI_TRY(tri_run_in_dir(r, "config.yaml", &path, err));
    const char *head = r->config.head;
    if (!head && r->ckpt.continues)
        head = old = read_head(path);
    tr_status status = head && *head ? write_all(r, head, path, err)
                                     : tr_settings_save(r->config.settings, path, err);
    free(old);
    free(path);
    return status;
}

tr_status tri_run_open_files(void *context, tr_error *err)
{
    tri_run *r = context;
    char *path;
    TRI_TRY(tri_make_dirs(r->config.dir, err));
    TRI_TRY(keep_tokenizer(r, err));
    TRI_TRY(write_config(r, err));
    TRI_TRY(tri_run_in_dir(r, "metrics.jsonl", &path, err));
    tr_status status = TR_OK;
    if (r->ckpt.continues)
        status = tri_jsonl_trim(path, r->ckpt.resumed.step, err);
    else if (unlink(path) != 0 && errno != ENOENT) /* a new run starts a new record */
        status =
            tri_fail(err, TR_ERROR_RUNTIME, "%s: cannot be replaced: %s", path, strerror(errno));
    tri_metrics *metrics = NULL;
    if (status == TR_OK)
        status = tri_metrics_open(path, &metrics, err);
    free(path);
    TRI_TRY(status);
    tri_observer observer = tri_metrics_observer(metrics);
    TRI_TRY(tri_run_observe(r, &observer, err));
    if (!*r->config.logs)
        return TR_OK;
    TRI_TRY(tri_logs_observer(r, &observer, err));
    return tri_run_observe(r, &observer, err);
}
