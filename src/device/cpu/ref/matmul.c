/* C = epilogue(alpha * op(A) op(B)), on 2-d views of tensors of any rank. */
#include "device/cpu/ref/ref.h"

/* A 2-d view: element (row, col) of op(X) is data[row * row_step + col * col_step]. */
typedef struct matrix_view {
    const float *data;
    int64_t rows, cols, row_step, col_step;
} matrix_view;

static matrix_view view_of(const tri_tensor *t, int split, bool trans)
{
    int64_t rows = 1, cols = 1;
    for (int d = 0; d < t->rank; d++)
        *(d < split ? &rows : &cols) *= t->size[d];
    if (trans)
        return (matrix_view){t->data, cols, rows, 1, cols};
    return (matrix_view){t->data, rows, cols, cols, 1};
}

static void matmul(const tri_kernel_args *args)
{
    const tri_matmul_attr *attr = &args->attr->matmul;
    matrix_view a = view_of(&args->in[0], attr->split_a, attr->trans_a);
    matrix_view b = view_of(&args->in[1], attr->split_b, attr->trans_b);
    const float *extra = args->in[2].data; /* bias [n]; before GELU, or to add: [m, n] */
    float *c = args->out[0].data;
    float *kept = args->out[1].data;
    double alpha = tri_kernel_alpha(args);
    for (int64_t i = 0; i < a.rows; i++) {
        for (int64_t j = 0; j < b.cols; j++) {
            double sum = 0;
            for (int64_t l = 0; l < a.cols; l++)
                sum += (double)a.data[i * a.row_step + l * a.col_step] *
                       b.data[l * b.row_step + j * b.col_step];
            double value = alpha * sum;
            int64_t at = i * b.cols + j;
            switch (attr->epilogue) {
            case TRI_EPILOGUE_NONE:
                break;
            case TRI_EPILOGUE_BIAS:
                value += extra[j];
                break;
            case TRI_EPILOGUE_BIAS_GELU:
                value += extra[j];
                kept[at] = (float)value;
                value = tri_ref_gelu(value);
                break;
            case TRI_EPILOGUE_GELU_GRAD:
                value *= tri_ref_gelu_grad(extra[at]);
                break;
            case TRI_EPILOGUE_ADD:
                value += extra[at];
                break;
            }
            tri_ref_store(&c[at], value, args->overwrite);
        }
    }
}

const tri_kernel tri_ref_matmul = {.run = matmul};
