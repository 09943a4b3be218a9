/* A directory of Hugging Face: config.json, the index of its shards, and the tokens that end a text
 * in generation_config.json. Weights are looked for where the index says, in the directory. */
#include "fuzz.h"

#include <string.h>

#include "ckpt/hf/hf.h"
#include "serve/vocabulary.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t num_bytes)
{
    fuzz_dir_fill(data, num_bytes);
    tri_hf_config config;
    tri_hf_shards shards = {0};
    tri_vocabulary vocabulary;
    tr_error err = {0};
    if (fuzz_fine(tri_hf_config_read(fuzz_dir(), &config, &err), &err))
        fuzz_require(config.num_settings <= TRI_HF_MAX_SETTINGS, "settings fit");
    if (fuzz_fine(tri_hf_shards_list(fuzz_dir(), &shards, &err), &err))
        tri_hf_shards_free(&shards);
    if (fuzz_fine(tri_vocabulary_open(fuzz_dir(), NULL, 1000, false, &vocabulary, &err), &err)) {
        fuzz_require(vocabulary.num_eos <= TRI_MAX_EOS, "eos fit");
        tri_vocabulary_close(&vocabulary);
    }
    return 0;
}
