/* Published sizes. GPT-2: Radford et al. 2019 and its released weights. GPT-3: Brown et al. 2020,
 * table 2.1 (widths that its heads do not divide are those of the paper's head size times heads). */
#include <string.h>

#include "model/model.h"

static const tri_preset presets[] = {
    {"gpt2-124m", "gpt2", 12, 768, 12, 3072, 50257, 1024},
    {"gpt2-350m", "gpt2", 24, 1024, 16, 4096, 50257, 1024},
    {"gpt2-774m", "gpt2", 36, 1280, 20, 5120, 50257, 1024},
    {"gpt2-1558m", "gpt2", 48, 1600, 25, 6400, 50257, 1024},
    {"gpt3-125m", "gpt2", 12, 768, 12, 3072, 50257, 2048},
    {"gpt3-350m", "gpt2", 24, 1024, 16, 4096, 50257, 2048},
    {"gpt3-760m", "gpt2", 24, 1536, 16, 6144, 50257, 2048},
    {"gpt3-1.3b", "gpt2", 24, 2048, 16, 8192, 50257, 2048},
    {"gpt3-2.7b", "gpt2", 32, 2560, 32, 10240, 50257, 2048},
    {"gpt3-6.7b", "gpt2", 32, 4096, 32, 16384, 50257, 2048},
    {"gpt3-13b", "gpt2", 40, 5120, 40, 20480, 50257, 2048},
    {"gpt3-175b", "gpt2", 96, 12288, 96, 49152, 50257, 2048},
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
