/* The head in tiles (model.loss_tile) on a GPU beside the plain head there: loss and gradients of
 * one step, vocabularies of 128 k too. Needs a GPU. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "device/device.h"
#include "layout_cells.h"

/* One step of plain gradient descent that goes so far that the weights are the gradients. */
#define GRADIENTS                                                                                  \
    "run.device=cuda optim.lr=1000 optim.momentum=0 optim.weight_decay=0 train.clip=1e9 "          \
    "optim.warmup_steps=0 optim.schedule=constant "

static const struct {
    cell cell;
    int tile;
    const char *more;
    double tolerance;
} cases[] = {
    {{{MODEL_GPT2, FP32, SGD, 1, 1, 0, 0, 0, 1, 0}}, 5, "", 1e-6},
    {{{MODEL_LLAMA, FP32, SGD, 1, 1, 0, 0, 0, 3, 1}}, 7, "layout.recompute=full", 1e-6},
    {{{MODEL_MLM, FP32, SGD, 1, 1, 0, 0, 0, 2, 0}}, 10, "", 1e-6},
    {{{MODEL_TIED, FP32, SGD, 1, 1, 0, 0, 0, 1, 0}},
     37,
     "model.vocab=131072 data.seq_len=100 train.batch=4 train.eval_batches=1",
     1e-6},
    {{{MODEL_GPT2, BF16, SGD, 1, 1, 0, 0, 0, 2, 0}}, 5, "", 2e-2},
    {{{MODEL_LLAMA, BF16_GRAD, SGD, 1, 1, 0, 0, 0, 1, 0}}, 7, "", 5e-2},
    {{{MODEL_TIED, FP16, SGD, 1, 1, 0, 0, 0, 2, 0}}, 7, "", 2e-2},
};

static void test_head(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cell_run plain, tiled;
        char name[200], more[400];
        tr_error err = {0};
        double limit = cases[i].tolerance;
        cell_name(&cases[i].cell, name, sizeof name);
        snprintf(more, sizeof more, "%s%s model.loss_tile=%d", GRADIENTS, cases[i].more,
                 cases[i].tile);
        if (cell_run_with(&tiled, &cases[i].cell, more, 1, &err) != TR_OK)
            fail_msg("%s: %s", name, err.message);
        *strstr(more, "model.loss_tile") = 0;
        if (cell_run_with(&plain, &cases[i].cell, more, 1, &err) != TR_OK)
            fail_msg("%s, plain: %s", name, err.message);
        cell_distance d = cell_compare(&plain, &tiled, 1);
        print_message("%s: loss %.2g, norm %.2g, held-out %.2g, all gradients %.2g, worst %.2g\n",
                      name, d.loss, d.norm, d.eval, d.weights, d.tensor);
        /* cuBLASLt may sum a smaller product in another order; the held-out loss is of weights that
         * are a thousand gradients */
        if (!(d.loss <= limit && d.norm <= limit && d.weights <= limit && d.eval <= 3 * limit &&
              d.tensor <= 3 * limit))
            fail_msg("%s: tiles change the loss by %g or the gradients by %g", name, d.loss,
                     d.weights);
        cell_run_fini(&plain);
        cell_run_fini(&tiled);
    }
}

int main(void)
{
    tri_device device;
    tr_error err = {0};
    tri_device_config config = {.kind = "cuda"};
    if (tri_device_open(&config, &device, &err) != TR_OK ||
        device.def->queue->start(&device, 0, &err) != TR_OK) {
        printf("skipped: %s\n", err.message);
        return 77;
    }
    tri_device_close(&device);
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_head)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
