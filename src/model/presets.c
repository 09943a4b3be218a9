/* Published sizes. GPT-2: Radford et al. 2019 and its released weights. GPT-3: Brown et al. 2020,
 * table 2.1 (widths that its heads do not divide are those of the paper's head size times heads).
 */
#include <string.h>

#include "model/model.h"

static const tri_preset presets[] = {
    {"gpt2-124m", "gpt2", 12, 768, 12, 3072, 50257, 1024, .num_kv_heads = 0},
    {"gpt2-350m", "gpt2", 24, 1024, 16, 4096, 50257, 1024, .num_kv_heads = 0},
    {"gpt2-774m", "gpt2", 36, 1280, 20, 5120, 50257, 1024, .num_kv_heads = 0},
    {"gpt2-1558m", "gpt2", 48, 1600, 25, 6400, 50257, 1024, .num_kv_heads = 0},
    {"gpt3-125m", "gpt2", 12, 768, 12, 3072, 50257, 2048, .num_kv_heads = 0},
    {"gpt3-350m", "gpt2", 24, 1024, 16, 4096, 50257, 2048, .num_kv_heads = 0},
    {"gpt3-760m", "gpt2", 24, 1536, 16, 6144, 50257, 2048, .num_kv_heads = 0},
    {"gpt3-1.3b", "gpt2", 24, 2048, 16, 8192, 50257, 2048, .num_kv_heads = 0},
    {"gpt3-2.7b", "gpt2", 32, 2560, 32, 10240, 50257, 2048, .num_kv_heads = 0},
    {"gpt3-6.7b", "gpt2", 32, 4096, 32, 16384, 50257, 2048, .num_kv_heads = 0},
    {"gpt3-13b", "gpt2", 40, 5120, 40, 20480, 50257, 2048, .num_kv_heads = 0},
    {"gpt3-175b", "gpt2", 96, 12288, 96, 49152, 50257, 2048, .num_kv_heads = 0},
    /* Llama 3: Grattafiori et al. 2024 and its configuration files. */
    {"llama3-8b", "llama", 32, 4096, 32, 14336, 128256, 8192, .num_kv_heads = 8,
     .rope_theta = 500000},
    {"llama3-70b", "llama", 80, 8192, 64, 28672, 128256, 8192, .num_kv_heads = 8,
     .rope_theta = 500000},
    {"llama3-405b", "llama", 126, 16384, 128, 53248, 128256, 8192, .num_kv_heads = 8,
     .rope_theta = 500000},
    /* BERT, uncased: Devlin et al. 2018 and its configuration files. */
    {"bert-base", "bert", 12, 768, 12, 3072, 30522, 512, .num_kv_heads = 0},
    {"bert-large", "bert", 24, 1024, 16, 4096, 30522, 512, .num_kv_heads = 0},
    /* As in the configuration files of the released models. */
    {"tinyllama-1.1b", "llama", 22, 2048, 32, 5632, 32000, 2048, .num_kv_heads = 4,
     .rope_theta = 10000},
    {"smollm-135m", "llama", 30, 576, 9, 1536, 49152, 2048, .num_kv_heads = 3, .rope_theta = 10000,
     .tied_head = true},
    {"smollm-360m", "llama", 32, 960, 15, 2560, 49152, 2048, .num_kv_heads = 5, .rope_theta = 10000,
     .tied_head = true},
    {"smollm-1.7b", "llama", 24, 2048, 32, 8192, 49152, 2048, .num_kv_heads = 32,
     .rope_theta = 10000, .tied_head = true},
    {"qwen2.5-0.5b", "llama", 24, 896, 14, 4864, 151936, 32768, .num_kv_heads = 2,
     .rope_theta = 1000000, .norm_eps = 1e-6f, .qkv_bias = true, .tied_head = true},
    {"qwen2.5-1.5b", "llama", 28, 1536, 12, 8960, 151936, 131072, .num_kv_heads = 2,
     .rope_theta = 1000000, .norm_eps = 1e-6f, .qkv_bias = true, .tied_head = true},
    {"qwen2.5-7b", "llama", 28, 3584, 28, 18944, 152064, 131072, .num_kv_heads = 4,
     .rope_theta = 1000000, .norm_eps = 1e-6f, .qkv_bias = true},
    {"qwen3-0.6b", "llama", 28, 1024, 16, 3072, 151936, 40960, .num_kv_heads = 8, .head_dim = 128,
     .rope_theta = 1000000, .norm_eps = 1e-6f, .qk_norm = true, .tied_head = true},
    {"qwen3-8b", "llama", 36, 4096, 32, 12288, 151936, 40960, .num_kv_heads = 8, .head_dim = 128,
     .rope_theta = 1000000, .norm_eps = 1e-6f, .qk_norm = true},
    {"mistral-7b", "llama", 32, 4096, 32, 14336, 32000, 32768, .num_kv_heads = 8,
     .rope_theta = 10000, .window = 4096},
    /* Mixtures of experts, as in the configuration files of the released models. */
    {"mixtral-8x7b", "llama", 32, 4096, 32, 14336, 32000, 32768, .num_kv_heads = 8,
     .rope_theta = 1000000,
     .moe =
         {.num_experts = 8, .choices = 2, .expert_dim = 14336, .renorm = true, .balance = 0.02f}},
    {"qwen2-57b-a14b", "llama", 28, 3584, 28, 18944, 151936, 131072, .num_kv_heads = 4,
     .rope_theta = 1000000, .norm_eps = 1e-6f, .qkv_bias = true,
     .moe = {.num_experts = 64,
             .choices = 8,
             .expert_dim = 2560,
             .shared_dim = 20480,
             .shared_gate = true,
             .balance = 0.001f}},
    {"qwen3-30b-a3b", "llama", 48, 2048, 32, 6144, 151936, 40960, .num_kv_heads = 4,
     .head_dim = 128, .rope_theta = 1000000, .norm_eps = 1e-6f, .qk_norm = true,
     .moe =
         {.num_experts = 128, .choices = 8, .expert_dim = 768, .renorm = true, .balance = 0.001f}},
    {"qwen3-235b-a22b", "llama", 94, 4096, 64, 12288, 151936, 40960, .num_kv_heads = 4,
     .head_dim = 128, .rope_theta = 1000000, .norm_eps = 1e-6f, .qk_norm = true,
     .moe =
         {.num_experts = 128, .choices = 8, .expert_dim = 1536, .renorm = true, .balance = 0.001f}},
    {"olmoe-1b-7b", "llama", 16, 2048, 16, 1024, 50304, 4096, .num_kv_heads = 16,
     .rope_theta = 10000, .qk_norm = true, .qk_norm_wide = true,
     .moe = {.num_experts = 64, .choices = 8, .expert_dim = 1024, .balance = 0.01f}},
};

const tri_preset *tri_preset_at(size_t i)
{
    return i < sizeof presets / sizeof *presets ? &presets[i] : NULL;
}

const tri_preset *tri_preset_find(const char *name)
{
    for (size_t i = 0; i < sizeof presets / sizeof *presets; i++)
        if (strcmp(presets[i].name, name) == 0)
            return &presets[i];
    return NULL;
}
