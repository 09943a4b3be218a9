/* A pattern in the first line, and any bytes as text behind it: what is not refused finds matches
 * that rise, lie in the text and have an end; JSON as Python writes it is parsed on the way. */
#include "fuzz.h"

#include <stdlib.h>

#include "base/python_json.h"
#include "data/tokenizer/pretokenize.h"

static void match_all(const tri_pattern *pattern, const char *text, size_t num_bytes)
{
    tri_matcher matcher = {0};
    tri_matches matches;
    size_t done = 0, num = 0, begin, end;
    tri_matcher_begin(&matcher, num_bytes);
    tri_matcher_allow(&matcher, 200000000);
    tri_matches_begin(&matches, pattern, &matcher, text, num_bytes);
    while (tri_matches_next(&matches, &begin, &end)) {
        fuzz_require(begin >= done && end >= begin && end <= num_bytes, "matches rise");
        fuzz_require(num++ <= 2 * num_bytes + 2, "matches end");
        done = end;
    }
    tri_matches_end(&matches);
    tri_matcher_fini(&matcher);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t num_bytes)
{
    tr_error err = {0};
    tri_pattern *pattern;
    json_error_t why;
    char *all = (char *)fuzz_bytes(data, num_bytes);
    json_decref(tri_python_json_load(all, num_bytes, NULL, &why));
    free(all);
    char *line = fuzz_line(&data, &num_bytes);
    char *text = (char *)fuzz_bytes(data, num_bytes);
    size_t length = 0;
    while (line[length])
        length++;
    if (fuzz_fine(tri_pattern_create(line, length, true, &pattern, &err), &err))
        match_all(pattern, text, num_bytes);
    tri_pattern_destroy(pattern);
    free(line);
    free(text);
    return 0;
}
