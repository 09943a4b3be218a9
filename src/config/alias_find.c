/* Finding a name of another trainer, and printing all of them. */
#include <ctype.h>
#include <string.h>

#include "base/settings/nearest.h"
#include "base/text.h"
#include "config/aliases.h"
#include "config/settings_table.h"

enum { MAX_NAME = 96 };

/* Lower case, underscores, no dashes in front. */
static void fold(const char *name, char out[MAX_NAME])
{
    size_t n = 0;
    name += strspn(name, "-");
    for (; *name && n + 1 < MAX_NAME; name++)
        out[n++] = *name == '-' ? '_' : (char)tolower((unsigned char)*name);
    out[n] = 0;
}

static const char *last_part(const char *name)
{
    const char *dot = strrchr(name, '.');
    return dot ? dot + 1 : name;
}

/* Whether a name as typed begins with the section of a setting. */
static bool same_section(const char *typed, const char *setting)
{
    size_t length = strcspn(typed, ".");
    return setting && typed[length] == '.' && strncmp(typed, setting, length + 1) == 0;
}

/* How far a row is from a folded name; MAX_NAME: it is another. A part of a dotted name stands for
 * it when it has more than one word, or is typed with our section: "interval" may be anybody's,
 * keep_latest_k and ckpt.interval are not. */
static int distance(const tri_alias *row, const char *typed)
{
    char name[MAX_NAME];
    fold(row->name, name);
    const char *part = last_part(typed);
    bool dotted = strchr(name, '.') != NULL;
    const char *own = last_part(name);
    if (strcmp(typed, name) == 0)
        return 0;
    if (dotted && !strchr(own, '_') && !same_section(typed, row->setting))
        return MAX_NAME;
    if (strcmp(part, own) == 0)
        return 1;
    int edits = tri_edit_distance(part, own);
    return 6 * edits <= (int)strlen(own) ? 2 + edits : MAX_NAME;
}

const tri_alias *tri_alias_find(const char *typed)
{
    char name[MAX_NAME];
    const tri_alias *best = NULL;
    int least = MAX_NAME;
    fold(typed, name);
    for (int i = 0; i < tri_num_aliases; i++) {
        const tri_alias *row = &tri_aliases[i];
        int d = distance(row, name);
        /* Of two that mean it differently, the one that means what we do. */
        if (d < least || (d == least && d < MAX_NAME && best->how && !row->how)) {
            least = d;
            best = row;
        }
    }
    return best;
}

const char *tri_alias_section(const char *name)
{
    size_t length = strlen(name);
    for (int i = 0; i < tri_num_aliases; i++)
        if (tri_aliases[i].setting && strncmp(tri_aliases[i].name, name, length) == 0 &&
            tri_aliases[i].name[length] == '.')
            for (int s = 0; s < tri_num_sections; s++) {
                size_t own = strlen(tri_sections[s].name);
                if (strncmp(tri_aliases[i].setting, tri_sections[s].name, own) == 0 &&
                    tri_aliases[i].setting[own] == '.')
                    return tri_sections[s].name;
            }
    return NULL;
}

/* Whether a row begins the part of a trainer. */
static bool begins(int i)
{
    return i == 0 || strcmp(tri_aliases[i - 1].trainer, tri_aliases[i].trainer) != 0;
}

void tri_aliases_list(FILE *file, int width)
{
    enum { COLUMN = 4, LEAST = 40 };
    for (int i = 0; i < tri_num_aliases && tri_aliases[i].trainer; i++) {
        const tri_alias *row = &tri_aliases[i];
        if (begins(i))
            fprintf(file, "%s%s\n", i ? "\n" : "", row->trainer);
        fprintf(file, "  %-36s %s\n", row->name, row->setting ? row->setting : "-");
        if (!row->how)
            continue;
        fprintf(file, "%*s", COLUMN, "");
        tri_text_wrap(file, row->how, COLUMN, width < LEAST ? LEAST : width);
    }
}

void tri_aliases_markdown(FILE *file)
{
    fprintf(file,
            "# Coming from nanoGPT, HF Trainer, torchtitan, Megatron\n\n"
            "Made from the table in the program by `trireme settings --aliases --markdown`; change "
            "it there (`src/config/aliases.c`).\n\n"
            "Type the name you know: `--set n_embd=256` is answered with the setting that it is "
            "here, and with how to convert the value where it means something else.\n"
            "Where the third column is empty, the value is the same. "
            "[settings.md](settings.md) has ranges and defaults.\n\n"
            "Three things differ from most trainers:\n\n"
            "- `train.batch` counts the rows of a step over all ranks and micro-batches. "
            "`layout.microbatches` is a count, gradient accumulation included: a micro-batch has "
            "train.batch / (layout.dp x layout.microbatches) rows.\n"
            "- The layout says how many ranks there are: layout.dp x layout.cp x layout.tp x "
            "layout.pp. "
            "`trireme train` starts them itself ([launch.md](launch.md)).\n"
            "- Nothing is downloaded: models and tokenizers are paths.\n");
    for (int i = 0; i < tri_num_aliases && tri_aliases[i].trainer; i++) {
        const tri_alias *row = &tri_aliases[i];
        if (begins(i))
            fprintf(file, "\n## %s\n\n| there | here | how |\n|---|---|---|\n", row->trainer);
        fprintf(file, row->setting ? "| `%s` | `%s` | %s |\n" : "| `%s` | %s | %s |\n", row->name,
                row->setting ? row->setting : "none", row->how ? row->how : "");
    }
}
