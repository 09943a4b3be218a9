/* Labelled data: the first line of an input is a template, the rest the entries, JSONL or a list.
 */
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "data/source/entries.h"
#include "data/source/labels.h"
#include "data/source/template.h"

typedef struct reading {
    tri_template *template; /* or NULL */
    tri_labels labels;
    bool has_labels;
} reading;

static tr_status take(void *context, const tri_entry *entry, tr_error *err)
{
    reading *r = context;
    tri_bytes prompt = {0}, answer = {0};
    const char *text;
    size_t length;
    int32_t label;
    fuzz_fine(tri_entry_text(entry, "text", "data.text_field", true, &text, &length, err), err);
    if (r->has_labels)
        fuzz_fine(tri_labels_read(&r->labels, entry, "label", &label, err), err);
    if (r->template)
        fuzz_fine(tri_template_render(r->template, entry, &prompt, &answer, err), err);
    tri_bytes_fini(&prompt);
    tri_bytes_fini(&answer);
    return TR_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t num_bytes)
{
    reading r = {0};
    tr_error err = {0};
    char *first = fuzz_line(&data, &num_bytes), *names = NULL;
    const char *path = fuzz_file(data, num_bytes);
    fuzz_fine(tri_template_parse("data.template", first, "output", &r.template, &err), &err);
    if (fuzz_fine(tri_labels_scan(path, "label", &names, &err), &err)) {
        r.has_labels = tri_labels_parse(names, &r.labels, &err) == TR_OK;
        fuzz_require(r.has_labels, "the labels that were found are a list of labels");
    }
    free(names);
    fuzz_fine(tri_entries_each(path, take, &r, NULL, &err), &err);
    if (r.has_labels)
        tri_labels_fini(&r.labels);
    tri_template_destroy(r.template);
    free(first);
    return 0;
}
