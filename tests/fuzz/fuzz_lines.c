/* Text that may be compressed, as lines and as JSONL. A few megabytes of what comes out are read.
 */
#include "fuzz.h"

#include <string.h>

#include "data/lines.h"

enum { MOST_LINES = 4000 };

static void each_line(const char *path)
{
    tri_lines *lines;
    tr_error err = {0};
    if (!fuzz_fine(tri_lines_open(path, &lines, &err), &err))
        return;
    tri_line line;
    for (int i = 0; i < MOST_LINES; i++) {
        if (!fuzz_fine(tri_lines_next(lines, &line, &err), &err) || !line.text)
            break;
        fuzz_require(line.number == i + 1 && line.text[line.num_bytes] == '\0',
                     "lines are counted, and end");
        tri_line_is_blank(&line);
    }
    tri_lines_close(lines);
}

static void each_object(const char *path)
{
    tri_lines *lines;
    tr_error err = {0};
    if (!fuzz_fine(tri_lines_open(path, &lines, &err), &err))
        return;
    for (int i = 0; i < MOST_LINES; i++) {
        tri_line line;
        json_t *object = NULL;
        const char *text;
        size_t length;
        if (!fuzz_fine(tri_lines_next(lines, &line, &err), &err) || !line.text)
            break;
        if (tri_line_is_blank(&line))
            continue;
        if (!fuzz_fine(tri_json_line_parse(path, &line, &object, &err), &err) || !object)
            break;
        fuzz_fine(tri_json_line_text(path, line.number, object, "text", &text, &length, &err),
                  &err);
        json_decref(object);
    }
    tri_lines_close(lines);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t num_bytes)
{
    const char *path = fuzz_file(data, num_bytes);
    tri_is_jsonl_name(path);
    each_line(path);
    each_object(path);
    return 0;
}
