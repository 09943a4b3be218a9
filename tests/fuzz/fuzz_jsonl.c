/* metrics.jsonl and events.jsonl after a crash: what belongs to steps that are done again goes, and
 * a half line. The first byte says from which step on. Doing it twice changes nothing. */
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "base/fs.h"
#include "train/ckpt/checkpoint.h"
#include "train/log/metrics.h"

static size_t size_of(const char *path)
{
    tri_mapping file;
    tr_error err = {0};
    fuzz_require(tri_mapping_open(&file, path, &err) == TR_OK, "the file is there");
    size_t num_bytes = file.num_bytes;
    fuzz_require(num_bytes == 0 || file.data[num_bytes - 1] == '\n', "it ends with a whole line");
    tri_mapping_close(&file);
    return num_bytes;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t num_bytes)
{
    if (num_bytes == 0)
        return 0;
    int64_t step = data[0] & 31;
    char *path = fuzz_path("metrics.jsonl");
    tri_metrics *metrics = NULL;
    tr_error err = {0};
    fuzz_require(tri_file_replace(path, data + 1, num_bytes - 1, &err) == TR_OK, "a file to trim");
    if (data[0] & 128) {
        if (fuzz_fine(tri_metrics_open(path, &metrics, &err), &err))
            tri_metrics_close(metrics);
    } else if (fuzz_fine(tri_jsonl_trim(path, step, &err), &err)) {
        size_t once = size_of(path);
        fuzz_require(tri_jsonl_trim(path, step, &err) == TR_OK && size_of(path) == once,
                     "what was trimmed stays as it is");
    }
    free(path);
    return 0;
}
