/* The table as text for people: a list for the terminal, a page for the docs. */
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "config/settings_internal.h"

enum {
    HELP_COLUMN = 38 /* where the explanation begins: name and default stand before it */
};

void tri_setting_values(const tri_setting *row, char *out, size_t size)
{
    char min[32], max[32];
    switch (row->type) {
    case TRI_SETTING_BOOL:
        snprintf(out, size, "true, false");
        return;
    case TRI_SETTING_STRING:
        snprintf(out, size, "text");
        return;
    case TRI_SETTING_CHOICE:
        snprintf(out, size, "%s", row->choices);
        return;
    case TRI_SETTING_INT:
    case TRI_SETTING_FLOAT:
        tri_setting_bound(row->min, min, sizeof min);
        tri_setting_bound(row->max, max, sizeof max);
        snprintf(out, size, "%s to %s", min, max);
    }
}

static const char *shown_default(const tri_setting *row)
{
    return *row->fallback ? row->fallback : "\"\"";
}

static void write_row(FILE *file, const tri_setting *row, int width)
{
    char values[200], text[600];
    tri_setting_values(row, values, sizeof values);
    if (row->type == TRI_SETTING_STRING || row->type == TRI_SETTING_BOOL)
        snprintf(text, sizeof text, "%s", row->help);
    else
        snprintf(text, sizeof text, "%s (%s)", row->help, values);
    int used = fprintf(file, "  %-20s  %s", row->name, shown_default(row));
    fprintf(file, "%*s", used < HELP_COLUMN ? HELP_COLUMN - used : 1, "");
    tri_text_wrap(file, text, HELP_COLUMN, width);
}

bool tri_setting_wanted(const tri_setting *row, const char *which)
{
    while (which && *which) {
        size_t length = strcspn(which, " ");
        if (strncmp(row->name, which, length) == 0 &&
            (row->name[length] == 0 || row->name[length] == '.'))
            return true;
        which += length;
        which += strspn(which, " ");
    }
    return which == NULL;
}

/* Every word of which must be a section or a setting. */
static tr_status check_which(const tri_table *table, const char *which, tr_error *err)
{
    while (which && *which) {
        char name[128];
        size_t length = strcspn(which, " ");
        snprintf(name, sizeof name, "%.*s", (int)(length < 127 ? length : 127), which);
        if (tri_setting_find(table, name) < 0 && tri_section_find(name) < 0)
            return tri_section_unknown(table, name, err);
        which += length;
        which += strspn(which, " ");
    }
    return TR_OK;
}

tr_status tri_table_help(const tri_table *table, FILE *file, const char *which, int width,
                         tr_error *err)
{
    TRI_TRY(check_which(table, which, err));
    width = width < HELP_COLUMN + 24 ? HELP_COLUMN + 24 : width;
    bool between = false;
    for (int s = 0; s < tri_num_sections; s++) {
        bool begun = false;
        for (int i = 0; i < table->num; i++) {
            const tri_setting *row = table->row[i];
            if (!tri_setting_in(row, tri_sections[s].name) || !tri_setting_wanted(row, which))
                continue;
            if (!begun)
                fprintf(file, "%s%s: %s\n", between ? "\n" : "", tri_sections[s].name,
                        tri_sections[s].help);
            begun = between = true;
            write_row(file, row, width);
        }
    }
    return TR_OK;
}

tr_status tr_settings_help(FILE *file, const char *which, int width, tr_error *err)
{
    tri_table table;
    tri_table_init(&table, NULL);
    return tri_table_help(&table, file, which, width, err);
}

void tr_settings_markdown(FILE *file)
{
    tri_table table;
    tri_table_init(&table, NULL);
    fprintf(file,
            "# Settings\n\n"
            "Made from the table in the program by `trireme settings --markdown`; change it there."
            "\n\n"
            "In a file, a section is a mapping and its keys stand below it, indented:\n\n"
            "```yaml\nmodel:\n  dim: 128\noptim:\n  lr: 1e-3\n```\n\n"
            "On the command line it is `--set model.dim=128`, which wins over the file.\n"
            "Whole numbers may be written `1000`, `1_000` or `1e3`; "
            "truth values `true`/`false`, `yes`/`no` or `on`/`off`.\n"
            "Where a text may be a list, a file holds a YAML list and `--set` has `;` between the "
            "parts.\n"
            "`version: 1` at the top of a file is optional.\n"
            "What a file does not mention has its default. One that sets nothing at all (empty, or "
            "only comments) is allowed, with a warning that names it.\n");
    for (int s = 0; s < tri_num_sections; s++) {
        fprintf(file, "\n## %s\n\n%c%s.\n\n", tri_sections[s].name,
                tri_sections[s].help[0] - 'a' + 'A', tri_sections[s].help + 1);
        fprintf(file, "| setting | default | values | meaning |\n|---|---|---|---|\n");
        for (int i = 0; i < table.num; i++) {
            const tri_setting *row = table.row[i];
            char values[200];
            if (!tri_setting_in(row, tri_sections[s].name))
                continue;
            tri_setting_values(row, values, sizeof values);
            fprintf(file, "| `%s` | `%s` | %s | %s |\n", row->name, shown_default(row), values,
                    row->help);
        }
    }
}
