/* Settings from YAML and back.
 *
 * The file is read as a stream of libyaml events, two levels deep: sections, then keys. Anything
 * deeper, repeated or unknown stops the reading with file, line and key. Values go into a copy that
 * replaces the settings only when the whole file was good. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

#include "base/fs.h"
#include "config/plugins.h"
#include "config/settings_internal.h"

enum {
    FORMAT_VERSION = 1,
    MAX_FILE_BYTES = 1 << 20 /* a thousand times a large recipe: more is the wrong file */
};

typedef struct yaml_reader {
    yaml_parser_t parser;
    yaml_event_t event; /* the current one; zero before the first and after a syntax error */
    const char *name;   /* of the file */
    const char *text;
    size_t num_bytes;
    tr_settings *draft;
    bool *seen_settings, *seen_sections;
    bool seen_version;
    char last[160]; /* the last key that was read, to say where a syntax error is */
    tr_error *err;
    bool foreign; /* plug-ins that the file needs are missing, and that is fine */
} yaml_reader;

/* Puts file and line before the message. */
static tr_status at_line(yaml_reader *r, size_t line, tr_status status)
{
    return tri_fail_prefix(r->err, status, "%s:%zu", r->name, line);
}

static tr_status fail_here(yaml_reader *r, tr_status status)
{
    return at_line(r, r->event.start_mark.line + 1, status);
}

static tr_status syntax_error(yaml_reader *r)
{
    const yaml_parser_t *p = &r->parser;
    if (p->error == YAML_MEMORY_ERROR)
        return tri_fail(r->err, TR_ERROR_RUNTIME, "out of memory while reading %s", r->name);
    size_t line = p->problem_mark.line + 1;
    if (p->error == YAML_SCANNER_ERROR && p->context) /* an open quote: where it was opened */
        line = p->context_mark.line + 1;
    if (p->error == YAML_READER_ERROR) { /* a wrong byte: libyaml knows its offset only */
        line = 1;
        for (size_t i = 0; i < p->problem_offset && i < r->num_bytes; i++)
            line += r->text[i] == '\n';
    }
    /* The most common cause by far, and libyaml's own words do not say it. */
    const char *start = r->text, *end = r->text + r->num_bytes;
    for (size_t i = 1; i < line && start < end; i++) {
        const char *newline = memchr(start, '\n', (size_t)(end - start));
        start = newline ? newline + 1 : end;
    }
    while (start < end && *start == ' ')
        start++;
    const char *hint = start < end && *start == '\t' ? "; indent with spaces, not with tabs" : "";
    if (p->error == YAML_READER_ERROR)
        hint = "; this is no text: give a settings file, for example recipes/tiny.yaml, or a run "
               "directory (weights are named with --set model.from=FILE)";
    tri_fail(r->err, TR_ERROR_INPUT, "not valid YAML: %s%s%s%s%s%s%s",
             p->problem ? p->problem : "?", p->context ? " " : "", p->context ? p->context : "",
             hint, *r->last ? " (after " : "", r->last, *r->last ? ")" : "");
    return at_line(r, line, TR_ERROR_INPUT);
}

static tr_status advance(yaml_reader *r)
{
    yaml_event_delete(&r->event);
    if (!yaml_parser_parse(&r->parser, &r->event))
        return syntax_error(r);
    return TR_OK;
}

/* The text of the current scalar, which must not hold a NUL: C strings could not keep it. */
static tr_status scalar_text(yaml_reader *r, const char *what, const char **text)
{
    *text = (const char *)r->event.data.scalar.value;
    if (strlen(*text) == r->event.data.scalar.length)
        return TR_OK;
    tri_fail(r->err, TR_ERROR_INPUT, "%s holds a NUL character; take it out", what);
    return fail_here(r, TR_ERROR_INPUT);
}

static bool is_null(const yaml_event_t *event)
{
    const char *text = (const char *)event->data.scalar.value;
    return event->type == YAML_SCALAR_EVENT &&
           event->data.scalar.style == YAML_PLAIN_SCALAR_STYLE &&
           (!*text || strcmp(text, "~") == 0 || strcmp(text, "null") == 0);
}

/* The parts of a list, joined with ';'. */
static tr_status read_list(yaml_reader *r, const tri_setting *row, char **joined)
{
    size_t num = 0;
    *joined = calloc(1, 1);
    for (bool first = true; *joined; first = false) {
        TRI_TRY(advance(r));
        if (r->event.type == YAML_SEQUENCE_END_EVENT)
            return TR_OK;
        if (r->event.type != YAML_SCALAR_EVENT) {
            tri_fail(r->err, TR_ERROR_INPUT, "%s may be a list of texts, but this part is not one",
                     row->name);
            return fail_here(r, TR_ERROR_INPUT);
        }
        const char *text;
        TRI_TRY(scalar_text(r, row->name, &text));
        char *longer = realloc(*joined, num + strlen(text) + 2);
        if (!longer)
            break;
        *joined = longer;
        num += (size_t)sprintf(longer + num, "%s%s", first ? "" : ";", text);
    }
    return tri_fail(r->err, TR_ERROR_RUNTIME, "out of memory while reading %s", r->name);
}

static tr_status wrong_shape(yaml_reader *r, const tri_setting *row)
{
    char expected[200];
    tri_setting_expected(row, expected, sizeof expected);
    const char *found = r->event.type == YAML_SEQUENCE_START_EVENT  ? "a list"
                        : r->event.type == YAML_MAPPING_START_EVENT ? "a mapping"
                                                                    : "an alias";
    tri_fail(r->err, TR_ERROR_INPUT, "%s is %s; expected %s, for example %s: %s", row->name, found,
             expected, tri_setting_key(row), *row->fallback ? row->fallback : "\"text\"");
    return fail_here(r, TR_ERROR_INPUT);
}

/* Code that runs is named by whoever starts the program, not by a file. */
static tr_status refuse_typed(yaml_reader *r, const tri_setting *row)
{
    tri_fail(r->err, TR_ERROR_INPUT,
             "%s names code that is run, so a settings file may not set it: take the line out, and "
             "give it on the command line (--set %s=FILE)",
             row->name, row->name);
    return fail_here(r, TR_ERROR_INPUT);
}

/* The value of a known setting; the current event is its first. */
static tr_status read_value(yaml_reader *r, int index)
{
    const tri_setting *row = r->draft->table.row[index];
    tri_setting_value *value = &r->draft->values[index];
    size_t line = r->event.start_mark.line + 1;
    tr_status status;
    if (row->loads) { /* what it needs is there: tri_settings_check_needs */
        char *joined = NULL;
        status = r->event.type == YAML_SEQUENCE_START_EVENT ? read_list(r, row, &joined) : TR_OK;
        free(joined);
        return r->event.type == YAML_MAPPING_START_EVENT ? wrong_shape(r, row) : status;
    }
    if (row->typed_only)
        return r->event.type == YAML_SCALAR_EVENT &&
                       (is_null(&r->event) || r->event.data.scalar.length == 0)
                   ? TR_OK
                   : refuse_typed(r, row);
    if (r->event.type == YAML_SEQUENCE_START_EVENT && row->type == TRI_SETTING_STRING) {
        char *joined = NULL;
        status = read_list(r, row, &joined);
        if (status == TR_OK) {
            status = tri_setting_parse(row, joined, value, r->err);
            if (status != TR_OK)
                at_line(r, line, status);
        }
        free(joined);
    } else if (r->event.type == YAML_SCALAR_EVENT) {
        const char *text;
        TRI_TRY(scalar_text(r, row->name, &text));
        /* Nothing is the empty text; elsewhere "null" may be the name of a choice. */
        if (row->type == TRI_SETTING_STRING && is_null(&r->event))
            text = "";
        status = tri_setting_parse(row, text, value, r->err);
        if (status == TR_ERROR_INPUT && r->foreign && row->type == TRI_SETTING_CHOICE)
            return TR_OK; /* a kind of a plug-in: whoever only looks sees the default */
        if (status != TR_OK)
            fail_here(r, status);
    } else {
        return wrong_shape(r, row);
    }
    value->given = value->given || status == TR_OK;
    return status;
}

/* Copies the current event as a key. */
static tr_status read_key(yaml_reader *r, char *key, size_t size)
{
    const char *text = NULL;
    if (r->event.type != YAML_SCALAR_EVENT) {
        tri_fail(r->err, TR_ERROR_INPUT,
                 "expected the name of a setting here%s%s%s; put text with { or [ in quotes",
                 *r->last ? " (after " : "", r->last, *r->last ? ")" : "");
        return fail_here(r, TR_ERROR_INPUT);
    }
    TRI_TRY(scalar_text(r, "this key", &text));
    snprintf(key, size, "%s", text);
    return TR_OK;
}

/* Of a setting that a plug-in brings, which is not loaded. */
static tr_status skip_value(yaml_reader *r)
{
    int depth = 0;
    do {
        TRI_TRY(advance(r));
        depth +=
            r->event.type == YAML_SEQUENCE_START_EVENT || r->event.type == YAML_MAPPING_START_EVENT;
        depth -=
            r->event.type == YAML_SEQUENCE_END_EVENT || r->event.type == YAML_MAPPING_END_EVENT;
    } while (depth > 0);
    return TR_OK;
}

static tr_status read_section(yaml_reader *r, const char *section)
{
    for (;;) {
        char key[64], name[160];
        TRI_TRY(advance(r));
        if (r->event.type == YAML_MAPPING_END_EVENT)
            return TR_OK;
        TRI_TRY(read_key(r, key, sizeof key));
        snprintf(name, sizeof name, "%s.%s", section, key);
        int index = tri_setting_find(&r->draft->table, name);
        if (index < 0 && r->foreign) {
            TRI_TRY(skip_value(r));
            continue;
        }
        if (index < 0) {
            tri_setting_unknown(&r->draft->table, name, r->err);
            return fail_here(r, TR_ERROR_INPUT);
        }
        if (r->seen_settings[index]) {
            tri_fail(r->err, TR_ERROR_INPUT, "%s is given twice in this file; keep one of them",
                     name);
            return fail_here(r, TR_ERROR_INPUT);
        }
        r->seen_settings[index] = true;
        snprintf(r->last, sizeof r->last, "%s", name);
        TRI_TRY(advance(r));
        TRI_TRY(read_value(r, index));
    }
}

/* A key at the top level that is not a section: say where it belongs. */
static tr_status unknown_section(yaml_reader *r, const char *key)
{
    int index = tri_setting_find(&r->draft->table, key);
    if (index < 0) {
        tri_section_unknown(&r->draft->table, key, r->err);
    } else {
        const tri_setting *row = r->draft->table.row[index];
        tri_fail(r->err, TR_ERROR_INPUT,
                 "write %s as a section and a key: \"%.*s:\" and, indented below it, \"%s: ...\"",
                 row->name, (int)strcspn(row->name, "."), row->name, tri_setting_key(row));
    }
    return fail_here(r, TR_ERROR_INPUT);
}

static tr_status read_version(yaml_reader *r)
{
    TRI_TRY(advance(r));
    const char *text = "";
    if (r->event.type == YAML_SCALAR_EVENT)
        TRI_TRY(scalar_text(r, "version", &text));
    if (strcmp(text, "1") == 0 && !r->seen_version) {
        r->seen_version = true;
        return TR_OK;
    }
    char shown[80];
    tri_setting_show(text, shown, sizeof shown);
    if (r->seen_version)
        tri_fail(r->err, TR_ERROR_INPUT, "version is given twice in this file; keep one of them");
    else
        tri_fail(r->err, TR_ERROR_INPUT,
                 "version is \"%s\", but this Trireme reads settings of version %d; a newer one "
                 "wrote this file: use that, or take the line out",
                 shown, FORMAT_VERSION);
    return fail_here(r, TR_ERROR_INPUT);
}

/* "layout: auto", which is short for a section with auto: true. */
static bool is_auto(yaml_reader *r, const char *section)
{
    int index = tri_section_auto(&r->draft->table, section);
    if (index < 0 || r->event.type != YAML_SCALAR_EVENT ||
        strcmp((const char *)r->event.data.scalar.value, "auto") != 0)
        return false;
    r->draft->values[index].integer = 1;
    r->draft->values[index].given = true;
    return true;
}

/* One entry of the top level; the current event is its key. */
static tr_status read_top_entry(yaml_reader *r)
{
    char key[64];
    TRI_TRY(read_key(r, key, sizeof key));
    int index = tri_section_find(key);
    if (strcmp(key, "version") == 0)
        return read_version(r);
    if (index < 0)
        return unknown_section(r, key);
    if (r->seen_sections[index]) {
        tri_fail(r->err, TR_ERROR_INPUT, "the section %s is there twice; join the two", key);
        return fail_here(r, TR_ERROR_INPUT);
    }
    r->seen_sections[index] = true;
    snprintf(r->last, sizeof r->last, "%s", key);
    TRI_TRY(advance(r));
    if (r->event.type == YAML_MAPPING_START_EVENT)
        return read_section(r, key);
    if (is_null(&r->event)) /* a section whose keys are all commented out */
        return TR_OK;
    if (is_auto(r, key))
        return TR_OK;
    const tri_setting *row = tri_section_first(&r->draft->table, key);
    char shown[80] = "a list";
    if (r->event.type == YAML_SCALAR_EVENT)
        tri_setting_show((const char *)r->event.data.scalar.value, shown, sizeof shown);
    tri_fail(r->err, TR_ERROR_INPUT,
             "%s is a section; below it stand lines such as \"  %s: %s\", but here is \"%s\"", key,
             tri_setting_key(row), row->fallback, shown);
    return fail_here(r, TR_ERROR_INPUT);
}

static tr_status read_file(yaml_reader *r)
{
    TRI_TRY(advance(r)); /* start of the stream */
    TRI_TRY(advance(r));
    if (r->event.type == YAML_STREAM_END_EVENT) /* empty, or comments only */
        return TR_OK;
    TRI_TRY(advance(r));
    if (r->event.type == YAML_MAPPING_START_EVENT) {
        for (;;) {
            TRI_TRY(advance(r));
            if (r->event.type == YAML_MAPPING_END_EVENT)
                break;
            TRI_TRY(read_top_entry(r));
        }
    } else if (!is_null(&r->event)) {
        tri_fail(r->err, TR_ERROR_INPUT,
                 "this is not a settings file; it begins with a section, for example \"model:\" "
                 "and then \"  dim: 64\"");
        return fail_here(r, TR_ERROR_INPUT);
    }
    TRI_TRY(advance(r)); /* end of the document */
    TRI_TRY(advance(r));
    if (r->event.type == YAML_STREAM_END_EVENT)
        return TR_OK;
    tri_fail(r->err, TR_ERROR_INPUT, "a second document begins here; a settings file holds one");
    return fail_here(r, TR_ERROR_INPUT);
}

/* look: what the file needs of plug-ins may be missing, and is then left out. */
static tr_status load_text(tr_settings *settings, const char *name, const char *text,
                           size_t num_bytes, bool look, tr_error *err)
{
    yaml_reader r = {.name = name, .text = text, .num_bytes = num_bytes, .err = err};
    tr_status needs = tri_settings_check_needs(settings, name, text, num_bytes, err);
    r.foreign = look && needs == TR_ERROR_INPUT;
    if (needs != TR_OK && !r.foreign)
        return needs;
    TRI_TRY(tri_settings_clone(settings, &r.draft, err));
    r.seen_settings = calloc((size_t)(settings->table.num + tri_num_sections), sizeof(bool));
    if (!r.seen_settings || !yaml_parser_initialize(&r.parser)) {
        free(r.seen_settings);
        tr_settings_destroy(r.draft);
        return tri_fail(err, TR_ERROR_RUNTIME, "out of memory while reading %s", name);
    }
    r.seen_sections = r.seen_settings + settings->table.num;
    yaml_parser_set_input_string(&r.parser, (const unsigned char *)text, num_bytes);
    tr_status status = read_file(&r);
    if (status == TR_OK) {
        tri_setting_value *old = settings->values;
        settings->values = r.draft->values;
        r.draft->values = old;
    }
    yaml_event_delete(&r.event);
    yaml_parser_delete(&r.parser);
    free(r.seen_settings);
    tr_settings_destroy(r.draft);
    return status;
}

tr_status tr_settings_load_text(tr_settings *settings, const char *name, const char *text,
                                size_t num_bytes, tr_error *err)
{
    return load_text(settings, name, text, num_bytes, false, err);
}

static tr_status load(tr_settings *settings, const char *yaml_path, bool look, tr_error *err)
{
    if (!yaml_path || !*yaml_path)
        return tri_fail(err, TR_ERROR_INPUT,
                        "no settings file is named; give the path of a YAML file, for example "
                        "recipes/tiny.yaml");
    FILE *file = fopen(yaml_path, "rb");
    if (!file)
        return tri_fail_prefix(err, tri_fail_open(err, yaml_path, errno), "settings file");
    char *text = malloc(MAX_FILE_BYTES + 1);
    errno = 0;
    size_t num_bytes = text ? fread(text, 1, MAX_FILE_BYTES + 1, file) : 0;
    int failed = ferror(file), why = errno;
    fclose(file);
    tr_status status;
    if (!text)
        status = tri_fail(err, TR_ERROR_RUNTIME, "out of memory while reading %s", yaml_path);
    else if (failed)
        status = tri_fail(err, TR_ERROR_INPUT, "cannot read the settings file %s: %s", yaml_path,
                          strerror(why));
    else if (num_bytes > MAX_FILE_BYTES)
        status = tri_fail(err, TR_ERROR_INPUT,
                          "%s is larger than 1 MiB, so it is not a settings file; give the path of "
                          "a YAML file, for example recipes/tiny.yaml",
                          yaml_path);
    else
        status = load_text(settings, yaml_path, text, num_bytes, look, err);
    free(text);
    return status;
}

tr_status tr_settings_load(tr_settings *settings, const char *yaml_path, tr_error *err)
{
    return load(settings, yaml_path, false, err);
}

tr_status tri_settings_look(tr_settings *settings, const char *yaml_path, tr_error *err)
{
    return load(settings, yaml_path, true, err);
}
