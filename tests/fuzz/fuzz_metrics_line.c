/* Lines of metrics.jsonl have a quick way and the way of any JSON, which a blank before the line
 * takes: both read the same. */
#include "fuzz.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "train/log/metrics_read.h"

static bool same(double a, double b)
{
    return a == b || (isnan(a) && isnan(b));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t num_bytes)
{
    uint8_t *text = malloc(num_bytes + 2);
    tri_metrics_line quick, slow;
    bool ours[2];
    tr_error err = {0};
    fuzz_require(text, "memory");
    text[0] = ' ';
    if (num_bytes > 0)
        memcpy(text + 1, data, num_bytes);
    text[num_bytes + 1] = '\n';
    uint8_t *line = fuzz_bytes(text + 1, num_bytes + 1); /* nothing is read behind its end */
    fuzz_fine(tri_metrics_line_read((const char *)line, num_bytes + 1, &quick, &ours[0], &err),
              &err);
    fuzz_fine(tri_metrics_line_read((const char *)text, num_bytes + 2, &slow, &ours[1], &err),
              &err);
    fuzz_require(ours[0] == ours[1], "both say whether it is a step's");
    fuzz_require(!ours[0] || quick.step > 0, "steps count from 1");
    if (ours[0])
        fuzz_require(quick.step == slow.step && quick.tokens == slow.tokens &&
                         quick.epoch == slow.epoch && same(quick.loss, slow.loss) &&
                         same(quick.grad_norm, slow.grad_norm) && same(quick.lr, slow.lr) &&
                         same(quick.step_ms, slow.step_ms) &&
                         same(quick.tokens_per_s, slow.tokens_per_s) &&
                         same(quick.eval_loss, slow.eval_loss) && same(quick.time, slow.time),
                     "both read the same numbers");
    free(line);
    free(text);
    return 0;
}
