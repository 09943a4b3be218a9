/* Names of experts in files: of one, and of all together. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ckpt/hf/hf_parts.h"

static const char experts[] = ".mlp.experts.", gate_up[] = "gate_up_proj", weight[] = ".weight";

int64_t tri_hf_num_experts(const tri_param *param)
{
    const tri_shape *shape = &param->shape;
    return shape->rank == 3 && shape->dim[0].name == TRI_DIM_E ? shape->dim[0].size : 0;
}

/* What follows ".mlp.experts.", or NULL. */
static const char *after(const char *canonical)
{
    const char *at = strstr(canonical, experts);
    return at ? at + sizeof experts - 1 : NULL;
}

char *tri_hf_expert_name(const char *canonical, int64_t expert, char *text, size_t text_size)
{
    const char *rest = after(canonical);
    snprintf(text, text_size, "%.*s%lld.%s", (int)(rest - canonical), canonical, (long long)expert,
             rest);
    return text;
}

char *tri_hf_fused_name(const char *canonical, char *text, size_t text_size, int *half)
{
    const char *rest = after(canonical);
    bool down = strncmp(rest, "down", 4) == 0;
    *half = strncmp(rest, "up", 2) == 0;
    snprintf(text, text_size, "%.*s%s", (int)(rest - canonical), canonical,
             down ? "down_proj" : gate_up);
    return text;
}

int64_t tri_hf_expert_param(char *canonical, size_t text_size)
{
    char *rest = canonical ? (char *)(uintptr_t)after(canonical) : NULL, *end;
    if (!rest)
        return -1;
    size_t room = text_size - (size_t)(rest - canonical);
    if (strcmp(rest, gate_up) == 0) {
        snprintf(rest, room, "gate_proj%s", weight);
        return -1;
    }
    if (strcmp(rest, "down_proj") == 0) {
        snprintf(rest + strlen(rest), room - strlen(rest), "%s", weight);
        return -1;
    }
    int64_t expert = rest[0] >= '0' && rest[0] <= '9' ? strtoll(rest, &end, 10) : -1;
    if (expert < 0 || *end != '.' || (rest[0] == '0' && end > rest + 1))
        return -1;
    memmove(rest, end + 1, strlen(end + 1) + 1);
    return expert;
}
