/* What travels from a directory of Hugging Face through a run and out again, beside the weights. */
#include <stdlib.h>
#include <string.h>

#include "base/fs.h"
#include "ckpt/hf/hf_parts.h"
#include "data/tokenizer/tokenizer.h"

static const char *const companions[] = {"tokenizer.json",
                                         "tokenizer_config.json",
                                         "special_tokens_map.json",
                                         "added_tokens.json",
                                         "vocab.json",
                                         "merges.txt",
                                         "vocab.txt",
                                         "encoder.json",
                                         "vocab.bpe",
                                         "tokenizer.model",
                                         "chat_template.jinja",
                                         "chat_template.json",
                                         "generation_config.json"};

static tr_status copy(const char *from_dir, const char *from, const char *to_dir, const char *to,
                      tr_error *err)
{
    char *source = tri_path_join(from_dir, from), *target = tri_path_join(to_dir, to);
    tri_mapping file;
    tr_status status = TR_OK;
    if (!source || !target) {
        status = tri_fail(err, TR_ERROR_RUNTIME, "%s: out of memory", to_dir);
    } else if (tri_path_exists(source)) {
        status = tri_mapping_open(&file, source, err);
        if (status == TR_OK) {
            status = tri_file_replace(target, file.data, file.num_bytes, err);
            tri_mapping_close(&file);
        }
    }
    free(source);
    free(target);
    return status;
}

tr_status tri_hf_copy_companions(const char *from, const char *to, tr_error *err)
{
    for (size_t i = 0; i < sizeof companions / sizeof *companions; i++)
        TRI_TRY(copy(from, companions[i], to, companions[i], err));
    return TR_OK;
}

tr_status tri_hf_keep(const char *from, const char *run_dir, tr_error *err)
{
    TRI_TRY(tri_hf_copy_companions(from, run_dir, err));
    return copy(from, "config.json", run_dir, TRI_HF_KEPT, err);
}

/* ---- the tokens that begin, end and fill texts ---- */

static const char *const ids[] = {"bos_token_id",  "eos_token_id",          "pad_token_id",
                                  "unk_token_id",  "cls_token_id",          "sep_token_id",
                                  "mask_token_id", "decoder_start_token_id"};

static tr_status take_kept(const char *run_dir, json_t *config, tr_error *err)
{
    json_t *kept = NULL;
    char *path = NULL;
    tr_status status = tri_hf_json_read(run_dir, TRI_HF_KEPT, &kept, &path, err);
    for (size_t i = 0; status == TR_OK && i < sizeof ids / sizeof *ids; i++) {
        json_t *value = json_object_get(kept, ids[i]);
        if (value && json_object_set(config, ids[i], value) != 0)
            status = tri_fail(err, TR_ERROR_RUNTIME, "%s: out of memory", run_dir);
    }
    json_decref(kept);
    free(path);
    return status;
}

static tr_status take_from_tokenizer(const char *run_dir, json_t *config, tr_error *err)
{
    static const tri_special role[] = {TRI_SPECIAL_BOS, TRI_SPECIAL_EOS, TRI_SPECIAL_PAD};
    json_int_t vocab = json_integer_value(json_object_get(config, "vocab_size"));
    tri_tokenizer *tokenizer;
    TRI_TRY(tri_tokenizer_open(run_dir, &tokenizer, err));
    int failed = 0;
    for (int i = 0; i < 3; i++) {
        int32_t id = tri_tokenizer_special(tokenizer, role[i]);
        if (id >= 0 && id < vocab)
            failed |= json_object_set_new(config, ids[i], json_integer(id));
    }
    tri_tokenizer_close(tokenizer);
    return failed ? tri_fail(err, TR_ERROR_RUNTIME, "%s: out of memory", run_dir) : TR_OK;
}

tr_status tri_hf_token_ids(const char *run_dir, json_t *config, tr_error *err)
{
    char *kept = tri_path_join(run_dir, TRI_HF_KEPT);
    bool has_kept = kept && tri_path_exists(kept);
    free(kept);
    if (has_kept)
        return take_kept(run_dir, config, err);
    return tri_tokenizer_is_dir(run_dir) ? take_from_tokenizer(run_dir, config, err) : TR_OK;
}
