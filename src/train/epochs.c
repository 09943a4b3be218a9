#include "train/epochs.h"

#include "data/data.h"

tr_status tri_epochs_init(tri_epochs *epochs, int64_t num, int64_t rows, int64_t batch,
                          tr_error *err)
{
    *epochs = (tri_epochs){0};
    if (num <= 0)
        return TR_OK;
    if (rows == TRI_DATA_ENDLESS)
        return tri_fail(err, TR_ERROR_INPUT,
                        "train.epochs is %lld, but this data has no epochs: it is made up without "
                        "end, or a mixture of several sources; set train.epochs=0 and say how long "
                        "by train.steps",
                        (long long)num);
    int64_t steps = (rows - 1) / batch + 1;
    if (num > INT64_MAX / 2 / rows || num > INT32_MAX / steps)
        return tri_fail(err, TR_ERROR_INPUT,
                        "train.epochs is %lld, which are more than %d steps of train.batch = %lld; "
                        "set fewer",
                        (long long)num, INT32_MAX, (long long)batch);
    *epochs = (tri_epochs){.num = num, .rows = rows, .steps = steps};
    return TR_OK;
}

int64_t tri_epochs_num_steps(const tri_epochs *epochs, int64_t max_steps)
{
    int64_t all = epochs->num * epochs->steps;
    if (epochs->num == 0 || (max_steps > 0 && max_steps < all))
        return max_steps;
    return all;
}

bool tri_epochs_sample(const tri_epochs *epochs, int64_t batch, int64_t step, int64_t row,
                       uint64_t *sample)
{
    if (row >= batch)
        return false;
    if (epochs->num == 0) {
        *sample = (uint64_t)step * (uint64_t)batch + (uint64_t)row;
        return true;
    }
    int64_t in_epoch = step % epochs->steps * batch + row;
    *sample = (uint64_t)(step / epochs->steps) * (uint64_t)epochs->rows + (uint64_t)in_epoch;
    return in_epoch < epochs->rows;
}

int64_t tri_epochs_batch_rows(const tri_epochs *epochs, int64_t batch, int64_t step)
{
    if (epochs->num == 0)
        return batch;
    int64_t left = epochs->rows - step % epochs->steps * batch;
    return left < batch ? left : batch;
}

int64_t tri_epochs_ended(const tri_epochs *epochs, int64_t step)
{
    return epochs->num > 0 && (step + 1) % epochs->steps == 0 ? (step + 1) / epochs->steps : 0;
}
