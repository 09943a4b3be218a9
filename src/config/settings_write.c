/* The resolved settings as YAML: what run.dir/config.yaml holds; and as JSON, for other tools. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/fs.h"
#include "base/text.h"
#include "config/settings_internal.h"

/* A text in double quotes, where YAML has escapes for everything, and JSON has these, too. What
 * YAML calls printable stands as it is, so that prompts in any script stay readable. */
static void write_quoted(const char *text, FILE *file)
{
    fputc('"', file);
    while (*text) {
        uint32_t code = 0;
        int length = tri_utf8_decode(text, &code);
        if (code == '"' || code == '\\')
            fprintf(file, "\\%c", (char)code);
        else if (code == '\n')
            fputs("\\n", file);
        else if (code == '\t')
            fputs("\\t", file);
        else if (code < 0x20 || (code >= 0x7F && code < 0xA0) || code == 0x2028 || code == 0x2029 ||
                 code == 0xFEFF || code == 0xFFFE || code == 0xFFFF)
            fprintf(file, "\\u%04X", (unsigned)code);
        else
            fwrite(text, 1, (size_t)length, file);
        text += length;
    }
    fputc('"', file);
}

static void write_value(const tri_setting *row, const tri_setting_value *value, FILE *file)
{
    char text[32];
    if (value->string) {
        write_quoted(value->string, file);
        return;
    }
    tri_setting_format(row, value, text, sizeof text);
    fputs(text, file);
}

static tr_status check_stream(FILE *file, tr_error *err)
{
    if (fflush(file) != 0 || ferror(file))
        return tri_fail(err, TR_ERROR_RUNTIME, "cannot write the settings: %s", strerror(errno));
    return TR_OK;
}

tr_status tr_settings_write_yaml(const tr_settings *settings, FILE *file, tr_error *err)
{
    fprintf(file, "version: 1\n");
    for (int s = 0; s < tri_num_sections; s++) {
        fprintf(file, "%s:\n", tri_sections[s].name);
        for (int i = 0; i < settings->table.num; i++) {
            const tri_setting *row = settings->table.row[i];
            const tri_setting_value *value = &settings->values[i];
            if (!tri_setting_in(row, tri_sections[s].name) || row->typed_only)
                continue;
            fprintf(file, "  %s: ", tri_setting_key(row));
            write_value(row, value, file);
            fputc('\n', file);
        }
    }
    return check_stream(file, err);
}

tr_status tr_settings_write_json(const tr_settings *settings, FILE *file, tr_error *err)
{
    const char *between = "{";
    for (int i = 0; i < settings->table.num; i++) {
        const tri_setting *row = settings->table.row[i];
        if (row->typed_only)
            continue;
        fprintf(file, "%s\"%s\":", between, row->name);
        write_value(row, &settings->values[i], file);
        between = ",";
    }
    fputs("}\n", file);
    return check_stream(file, err);
}

tr_status tr_settings_save(const tr_settings *settings, const char *path, tr_error *err)
{
    char *text = NULL;
    size_t num_bytes = 0;
    FILE *memory = open_memstream(&text, &num_bytes);
    if (!memory)
        return tri_fail(err, TR_ERROR_RUNTIME, "out of memory while writing %s", path);
    tr_status status = tr_settings_write_yaml(settings, memory, err);
    if (fclose(memory) != 0 && status == TR_OK)
        status = tri_fail(err, TR_ERROR_RUNTIME, "out of memory while writing %s", path);
    if (status == TR_OK)
        status = tri_file_replace(path, text, num_bytes, err);
    free(text);
    return status;
}
