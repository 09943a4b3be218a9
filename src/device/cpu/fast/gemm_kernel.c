/* The micro kernel of the matrix product, and the loop over a block of tiles.
 *
 * A tile of c is computed in registers, mr rows by nr columns, one rank-1 update per value of k.
 * The order of k is fixed and each element of c is one chain of additions per block, so the way a
 * product is cut into blocks of rows and columns does not change any bit of it. */
#include "device/cpu/fast/gemm_kernel.h"
#include "device/cpu/fast/gemm_tile.h"
#include "device/cpu/fast/vecmath.h"

#define LINE          16 /* floats of a cache line */
#define STEP          16 /* values of k between fetches */
#define ALWAYS_INLINE static inline __attribute__((always_inline))

/* Where the fetching of tri_gemm_block.ahead has got to. */
struct cursor {
    tri_gemm_ahead ahead;
    int64_t wait_steps; /* before the first fetch: early, it would be evicted again */
    int64_t lines_per_step;
    int64_t row, col;
};

/* Called once per STEP values of k. Spread out like this, fetches fill gaps; all at once at the
 * start of a tile, they would hold up the loads of the tile itself. */
ALWAYS_INLINE void fetch_ahead(struct cursor *cursor)
{
    const tri_gemm_ahead *ahead = &cursor->ahead;
    if (cursor->wait_steps-- > 0)
        return;
    for (int64_t n = 0; n < cursor->lines_per_step && cursor->row < ahead->rows; n++) {
        __builtin_prefetch(ahead->start + cursor->row * ahead->ld + cursor->col, 0, 2);
        cursor->col += LINE;
        if (cursor->col >= ahead->cols) {
            cursor->col = 0;
            cursor->row++;
        }
    }
}

/* acc[i][j] += a[i][p] * b[p][j] for p < depth, a small number or a constant. num_vectors and
 * by_rows are constants at each call, so that everything unrolls and acc stays in registers.
 * by_rows: a row of a is contiguous and stride_a goes from row to row; else a column is, and
 * stride_a goes from column to column. */
ALWAYS_INLINE void multiply(const int num_vectors, const bool by_rows, int64_t depth,
                            const float *restrict a, int64_t stride_a, const float *restrict b,
                            int64_t stride_b, vec acc[MR][NV])
{
#pragma GCC unroll 4
    for (int64_t p = 0; p < depth; p++) {
        vec row[NV];
#pragma GCC unroll 4
        for (int j = 0; j < num_vectors; j++)
            row[j] = load(b + j * WIDTH);
        if (!by_rows) /* a column in place is a line of its own, too far from the last to be
                         foreseen */
            __builtin_prefetch(a + 16 * stride_a);
#pragma GCC unroll 16
        for (int i = 0; i < MR; i++) {
            float element = by_rows ? a[i * stride_a] : a[i];
#pragma GCC unroll 4
            for (int j = 0; j < num_vectors; j++)
                acc[i][j] += element * row[j];
        }
        a += by_rows ? 1 : stride_a;
        b += stride_b;
    }
}

/* The same for any depth, fetching on the side: the tile of c, to be there at the end; with by_rows
 * the next panel of a; and what the block says is needed next. */
ALWAYS_INLINE void multiply_and_fetch(const int num_vectors, const bool by_rows, int64_t depth,
                                      const float *restrict a, int64_t stride_a,
                                      const float *restrict b, int64_t stride_b, vec acc[MR][NV],
                                      const float *c, int64_t ldc, struct cursor *cursor)
{
    int64_t p = 0;
    for (int row = 0; p + STEP <= depth; p += STEP, row++) {
        if (row < MR) {
#pragma GCC unroll 4
            for (int j = 0; j < num_vectors; j++)
                __builtin_prefetch(c + row * ldc + j * WIDTH, 1);
            __builtin_prefetch(c + row * ldc + num_vectors * WIDTH - 1, 1); /* if not aligned */
        }
        if (by_rows) {
#pragma GCC unroll 16
            for (int i = 0; i < MR; i++)
                __builtin_prefetch(a + (MR + i) * stride_a);
        }
        fetch_ahead(cursor);
        multiply(num_vectors, by_rows, STEP, a, stride_a, b, stride_b, acc);
        a += by_rows ? STEP : STEP * stride_a;
        b += STEP * stride_b;
    }
    multiply(num_vectors, by_rows, depth - p, a, stride_a, b, stride_b, acc);
}

/* c = alpha * acc (+ c) for a tile of which only rows x cols exist. */
static void store_edge(float *restrict c, int64_t ldc, const float *restrict tile, int64_t rows,
                       int64_t cols, float alpha, bool load_c)
{
    for (int64_t i = 0; i < rows; i++) {
        for (int64_t j = 0; j < cols; j++) {
            float old = load_c ? c[i * ldc + j] : 0.0f;
            c[i * ldc + j] = old + alpha * tile[i * NR + j];
        }
    }
}

ALWAYS_INLINE void run_tile(const int num_vectors, const bool by_rows, const tri_gemm_block *block,
                            const float *a, int64_t stride_a, const float *b, int64_t stride_b,
                            float *c, int64_t rows, int64_t cols, struct cursor *cursor)
{
    const int64_t ldc = block->ldc;
    bool whole = rows == MR && cols == num_vectors * WIDTH;
    vec acc[MR][NV];
#pragma GCC unroll 16
    for (int i = 0; i < MR; i++) {
#pragma GCC unroll 4
        for (int j = 0; j < num_vectors; j++)
            acc[i][j] = (vec){0};
    }
    multiply_and_fetch(num_vectors, by_rows, block->depth, a, stride_a, b, stride_b, acc, c, ldc,
                       cursor);
    if (!whole) {
        float tile[MR * NR];
        /* Unrolled like the rest: an index known only at run time would force acc into memory. */
#pragma GCC unroll 16
        for (int i = 0; i < MR; i++) {
#pragma GCC unroll 4
            for (int j = 0; j < num_vectors; j++)
                store(tile + i * NR + j * WIDTH, acc[i][j]);
        }
        store_edge(c, ldc, tile, rows, cols, block->alpha, block->load_c);
        return;
    }
    const float alpha = block->alpha;
    const bool load_c = block->load_c;
#pragma GCC unroll 16
    for (int i = 0; i < MR; i++) {
#pragma GCC unroll 4
        for (int j = 0; j < num_vectors; j++) {
            float *out = c + i * ldc + j * WIDTH;
            vec old = load_c ? load(out) : (vec){0};
            store(out, old + alpha * acc[i][j]);
        }
    }
}

/* These two exist so that the micro kernel is compiled for each constant it needs, and for no
 * more. */
static void run_tile_by_rows(const tri_gemm_block *block, const float *a, int64_t stride_a,
                             const float *b, int64_t stride_b, float *c, int64_t rows, int64_t cols,
                             struct cursor *cursor)
{
    if (cols > 2 * WIDTH && NV > 2)
        run_tile(NV, true, block, a, stride_a, b, stride_b, c, rows, cols, cursor);
    else if (cols > WIDTH)
        run_tile(2, true, block, a, stride_a, b, stride_b, c, rows, cols, cursor);
    else
        run_tile(1, true, block, a, stride_a, b, stride_b, c, rows, cols, cursor);
}

static void run_tile_by_columns(const tri_gemm_block *block, const float *a, int64_t stride_a,
                                const float *b, int64_t stride_b, float *c, int64_t rows,
                                int64_t cols, struct cursor *cursor)
{
    if (cols > 2 * WIDTH && NV > 2)
        run_tile(NV, false, block, a, stride_a, b, stride_b, c, rows, cols, cursor);
    else if (cols > WIDTH)
        run_tile(2, false, block, a, stride_a, b, stride_b, c, rows, cols, cursor);
    else
        run_tile(1, false, block, a, stride_a, b, stride_b, c, rows, cols, cursor);
}

static void add_bias(float *restrict c, const float *restrict bias, int64_t cols)
{
    for (int64_t j = 0; j < cols; j++)
        c[j] += bias[j];
}

static void add_bias_gelu(float *restrict c, const float *restrict bias, int64_t cols)
{
    for (int64_t j = 0; j < cols; j++)
        c[j] = tri_gelu(c[j] + bias[j]);
}

static void add_bias_gelu_keep(float *restrict c, const float *restrict bias, float *restrict aux,
                               int64_t cols)
{
    for (int64_t j = 0; j < cols; j++) {
        float x = c[j] + bias[j];
        aux[j] = x;
        c[j] = tri_gelu(x);
    }
}

static void multiply_gelu_grad(float *restrict c, const float *restrict aux, int64_t cols)
{
    for (int64_t j = 0; j < cols; j++)
        c[j] *= tri_gelu_grad(aux[j]);
}

/* On a tile that was just stored, while it is in the first-level cache. */
static void apply_epilogue(const tri_gemm_block *block, int64_t i0, int64_t j0, int64_t rows,
                           int64_t cols)
{
    const float *bias = block->bias != NULL ? block->bias + j0 : NULL;
    for (int64_t i = i0; i < i0 + rows; i++) {
        float *c = block->c + i * block->ldc + j0;
        float *aux = block->aux != NULL ? block->aux + i * block->ldaux + j0 : NULL;
        switch (block->epilogue) {
        case TRI_GEMM_PLAIN:
            return;
        case TRI_GEMM_BIAS:
            add_bias(c, bias, cols);
            break;
        case TRI_GEMM_BIAS_GELU:
            if (aux == NULL)
                add_bias_gelu(c, bias, cols);
            else
                add_bias_gelu_keep(c, bias, aux, cols);
            break;
        case TRI_GEMM_GELU_GRAD:
            multiply_gelu_grad(c, aux, cols);
            break;
        }
    }
}

static struct cursor start_cursor(const tri_gemm_block *block)
{
    struct cursor cursor = {.ahead = block->ahead};
    int64_t lines = block->ahead.rows * ((block->ahead.cols + LINE - 1) / LINE);
    int64_t tiles = ((block->rows + MR - 1) / MR) * ((block->cols + NR - 1) / NR);
    int64_t steps = tiles * (block->depth / STEP);
    if (steps > 0 && lines > 0) {
        cursor.lines_per_step = (lines + steps - 1) / steps;
        cursor.wait_steps = steps - lines / cursor.lines_per_step;
    }
    return cursor;
}

/* One tile, its operands taken from where the block has them. */
static void run_tile_of(const tri_gemm_block *block, const float *b, int64_t stride_b, int64_t i,
                        int64_t j, int64_t cols, struct cursor *cursor)
{
    int64_t rows = min_i64(MR, block->rows - i);
    const float *a = block->a + i / MR * block->a_panel;
    float *c = block->c + i * block->ldc + j;
    if (rows < MR && block->a_edge != NULL)
        run_tile_by_columns(block, block->a_edge, MR, b, stride_b, c, rows, cols, cursor);
    else if (block->a_row == 1)
        run_tile_by_columns(block, a, block->a_depth, b, stride_b, c, rows, cols, cursor);
    else
        run_tile_by_rows(block, a, block->a_row, b, stride_b, c, rows, cols, cursor);
    if (block->epilogue != TRI_GEMM_PLAIN)
        apply_epilogue(block, i, j, rows, cols);
}

/* Columns outside, rows inside: a panel of b stays in the first-level cache while the panels of a
 * stream past it from the second. */
static void run_block(const tri_gemm_block *block)
{
    struct cursor cursor = start_cursor(block);
    const float *packed = block->b;
    int64_t cols;
    for (int64_t j = 0; j < block->cols; j += cols, packed += block->b_panel) {
        cols = panel_cols(block->cols - j);
        const float *b = block->b_panel != 0 ? packed : block->b + j;
        int64_t stride_b = block->b_depth;
        if (block->b_edge != NULL && j + cols == block->cols) {
            b = block->b_edge;
            stride_b = NR;
        }
        for (int64_t i = 0; i < block->rows; i += MR) {
            run_tile_of(block, b, stride_b, i, j, cols, &cursor);
        }
    }
}

static int64_t last_panel(int64_t cols)
{
    int64_t j = 0;
    while (panel_cols(cols - j) < cols - j)
        j += panel_cols(cols - j);
    return j;
}

void TRI_ISA_NAME(tri_gemm_pack_a)(float *out, int64_t panel, const float *a, int64_t lda,
                                   bool trans_a, int64_t rows, int64_t depth);
void TRI_ISA_NAME(tri_gemm_pack_b)(float *out, int64_t panel, const float *b, int64_t ldb,
                                   bool trans_b, int64_t depth, int64_t cols);

void TRI_ISA_NAME(tri_gemm_few)(const tri_gemm_block *block, int64_t pass);

/* Few rows, then what the product does to its result. */
static void run_few(const tri_gemm_block *block, int64_t pass)
{
    TRI_ISA_NAME(tri_gemm_few)(block, pass);
    apply_epilogue(block, 0, 0, block->rows, block->cols);
}

const tri_gemm_kernels TRI_ISA_NAME(tri_gemm_kernels) = {
    .mr = MR,
    .nr = NR,
    .width = WIDTH,
    .run_block = run_block,
    .run_few = run_few,
    .last_panel = last_panel,
    .pack_a = TRI_ISA_NAME(tri_gemm_pack_a),
    .pack_b = TRI_ISA_NAME(tri_gemm_pack_b),
};
