/* metrics.csv and the log of W&B's offline runs, where a run goes on in them: what belongs to steps
 * that are done again goes, and what a crash has left. The first byte says which file, from which
 * step on, and whether the sums of the log's pieces are to be right. Doing it twice changes
 * nothing. */
#include "fuzz.h"

#include <endian.h>
#include <stdlib.h>
#include <string.h>

#include "base/fs.h"
#include "train/log/log_format.h"
#include "train/log/wandb.h"

/* Gives every piece the sum that it should have. */
static void seal(uint8_t *data, size_t num_bytes)
{
    for (size_t at = TRI_WANDB_HEAD_BYTES; at + TRI_WANDB_HEAD_BYTES <= num_bytes;) {
        size_t left = TRI_WANDB_BLOCK_BYTES - at % TRI_WANDB_BLOCK_BYTES;
        size_t length = data[at + 4] | (size_t)data[at + 5] << 8;
        if (left < TRI_WANDB_HEAD_BYTES) {
            at += left;
            continue;
        }
        if (length > num_bytes - at - TRI_WANDB_HEAD_BYTES)
            return;
        uint32_t sum = htole32(
            tri_wandb_sum((tri_wandb_piece)data[at + 6], data + at + TRI_WANDB_HEAD_BYTES, length));
        memcpy(data + at, &sum, sizeof sum);
        at += TRI_WANDB_HEAD_BYTES + length;
    }
}

/* Opens the file as a run does that goes on after so many steps; its size afterwards. */
static off_t go_on(const tri_log_format *format, const tri_log_facts *facts)
{
    tri_log log = {.format = format, .facts = facts, .own = calloc(1, format->own_bytes + 1)};
    tri_log_file_init(&log.file);
    int reason = format->open(&log);
    off_t size = log.file.size;
    fuzz_require(reason == 0, "the file can be opened");
    tri_log_file_fini(&log.file);
    tri_proto_fini(&log.proto);
    free(log.own);
    return size;
}

static void put_file(const char *name, const uint8_t *data, size_t num_bytes)
{
    char *path = fuzz_path(name);
    tr_error err = {0};
    fuzz_require(tri_file_replace(path, data, num_bytes, &err) == TR_OK, "a file to go on in");
    free(path);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t num_bytes)
{
    static const char dir[] = "wandb/offline-run-20260101_000000-abcdefgh";
    if (num_bytes == 0)
        return 0;
    bool of_wandb = data[0] & 128, sealed = data[0] & 64;
    uint8_t *copy = fuzz_bytes(data + 1, num_bytes - 1);
    char *folder = fuzz_path(dir);
    tri_log_facts facts = {
        .dir = (char *)fuzz_dir(), .run = "fuzz", .continues = true, .step = data[0] & 31};
    fuzz_require(tri_make_dirs(folder, NULL) == TR_OK, "a folder");
    free(folder);
    if (of_wandb && sealed)
        seal(copy, num_bytes - 1);
    const char *name =
        of_wandb ? "wandb/offline-run-20260101_000000-abcdefgh/run-abcdefgh.wandb" : "metrics.csv";
    put_file(name, copy, num_bytes - 1);
    if (of_wandb) { /* alone: what is not ours is left as it is, and nothing is to see */
        char *path = fuzz_path(name);
        tri_log_file file;
        tri_wandb_found once, twice;
        tri_log_file_init(&file);
        fuzz_require(tri_log_file_open(&file, path) == 0, "a log");
        fuzz_require(tri_wandb_scan(file.fd, facts.step, &once) == 0 && once.end <= file.size,
                     "an end within the file");
        fuzz_require(tri_log_file_cut(&file, once.end) == 0, "it can be cut");
        fuzz_require(tri_wandb_scan(file.fd, facts.step, &twice) == 0 && twice.end == once.end &&
                         twice.has_run == once.has_run,
                     "what was cut stays as it is");
        tri_log_file_fini(&file);
        free(path);
    } else {
        off_t once = go_on(&tri_log_csv, &facts);
        fuzz_require(go_on(&tri_log_csv, &facts) == once, "what was trimmed stays as it is");
        char *aside = fuzz_path("metrics.1.csv");
        (void)remove(aside);
        free(aside);
    }
    free(copy);
    return 0;
}
