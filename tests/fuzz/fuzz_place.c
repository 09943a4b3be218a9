/* The calculator: a line each for the mesh, the sizes, the axes of a strategy, and then lines of
 * arrays, moves and products. */
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "place/calc/calc.h"

static void calculate(tri_calc *calc, const char *line_text)
{
    static tri_calc_moves moves;
    static tri_calc_product product;
    tri_calc_line line;
    tri_text text;
    tr_error err = {0};
    if (!fuzz_fine(tri_calc_parse_line(calc, line_text, &line, &err), &err)) {
        fuzz_require(calc->error_at >= -1 && calc->error_at <= (int)strlen(line_text),
                     "the error has a place in the text");
        return;
    }
    tri_text_init(&text);
    moves.num = 0;
    if (line.kind == TRI_CALC_ARRAY) {
        tri_calc_report_array(calc, &line.a, &text);
        tri_calc_draw(calc, &line.a, &text);
    } else if (line.kind == TRI_CALC_MOVE) {
        if (fuzz_fine(tri_calc_move_to(calc, &line.a, &line.target, &moves, &err), &err))
            tri_calc_report_moves(calc, &line.a, &line.target, &moves, &text);
    } else if (fuzz_fine(
                   tri_calc_multiply(calc, &line.a, &line.b, line.has_target ? &line.target : NULL,
                                     line.has_target ? line.target.name : "C", &product, &err),
                   &err)) {
        tri_calc_report_product(calc, &product, &text);
    }
    tri_text_fini(&text);
}

static void train(tri_calc *calc, const char *axes_text)
{
    static tri_calc_training training;
    tri_text text;
    tr_error err = {0};
    unsigned axes = 0;
    if (!fuzz_fine(tri_calc_parse_axes(calc, axes_text, &axes, &err), &err))
        return;
    tri_text_init(&text);
    static const char *const strategies[] = {"dp", "fsdp", "tp", "megatron", "fsdp+tp"};
    for (size_t i = 0; i < sizeof strategies / sizeof *strategies; i++)
        if (fuzz_fine(tri_calc_train(calc, strategies[i], axes, &training, &err), &err))
            tri_calc_report_training(calc, &training, &text);
    tri_text_fini(&text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t num_bytes)
{
    tri_calc calc;
    tr_error err = {0};
    fuzz_require(tri_calc_init(&calc, &err) == TR_OK, "a calculator");
    char *mesh = fuzz_line(&data, &num_bytes), *sizes = fuzz_line(&data, &num_bytes),
         *axes = fuzz_line(&data, &num_bytes);
    fuzz_fine(tri_calc_parse_mesh(&calc, mesh, &err), &err);
    fuzz_fine(tri_calc_parse_sizes(&calc, sizes, &err), &err);
    while (num_bytes > 0) {
        char *line = fuzz_line(&data, &num_bytes);
        calculate(&calc, line);
        free(line);
    }
    if (*axes)
        train(&calc, axes);
    free(mesh);
    free(sizes);
    free(axes);
    return 0;
}
