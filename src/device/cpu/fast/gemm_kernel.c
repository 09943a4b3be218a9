/* The micro kernel of the matrix product, and the loop over a block of tiles.
 *
 * A tile of c is computed in registers, mr rows by nr columns, one rank-1 update per value of k.
 * The order of k is fixed and each element of c is one chain of additions per block, so the way a
 * product is cut into blocks of rows and columns does not change any bit of it. */
#include "device/cpu/fast/gemm_kernel.h"
#include "device/cpu/fast/gemm_tile.h"
#include "device/cpu/fast/vecfun.h"

#define LINE          16 /* floats of a cache line */
#define STEP          16 /* values of k between fetches */
#define ALWAYS_INLINE static inline __attribute__((always_inline))

/* Where the fetching of tri_gemm_block.ahead has got to. */
struct fetch_cursor {
    const tri_gemm_ahead *ahead, *end;
    int64_t wait_steps; /* before the first fetch: early, it would be evicted again */
    int64_t lines_per_step;
    int64_t row, col;
};

/* Called once per STEP values of k. Spread out like this, fetches fill gaps; all at once at the
 * start of a tile, they would hold up the loads of the tile itself. */
ALWAYS_INLINE void fetch_ahead(struct fetch_cursor *cursor)
{
    if (cursor->wait_steps-- > 0)
        return;
    for (int64_t n = 0; n < cursor->lines_per_step && cursor->ahead < cursor->end; n++) {
        const tri_gemm_ahead *ahead = cursor->ahead;
        __builtin_prefetch(ahead->start + cursor->row * ahead->ld + cursor->col, 0, 2);
        cursor->col += LINE;
        if (cursor->col < ahead->cols)
            continue;
        cursor->col = 0;
        if (++cursor->row < ahead->rows)
            continue;
        cursor->row = 0;
        cursor->ahead++;
    }
}

/* acc[i][j] += a[i][p] * b[p][j] for p < depth, a small number or a constant. num_vectors and
 * by_rows are constants at each call, so that everything unrolls and acc stays in registers.
 * by_rows: a row of a is contiguous and stride_a goes from row to row; else a column is, and
 * stride_a goes from column to column. */
ALWAYS_INLINE void multiply(const int num_vectors, const bool by_rows, int64_t depth,
                            const float *restrict a, int64_t stride_a, const float *restrict b,
                            int64_t stride_b, tile_vec acc[MR][NV])
{
#pragma GCC unroll 4
    for (int64_t p = 0; p < depth; p++) {
        tile_vec row[NV];
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

/* A row of c or aux that the end of the tile will read or write; and the same row of the tile
 * below, as far as the second-level cache: from memory, one tile is not time enough. */
ALWAYS_INLINE void fetch_row(const int num_vectors, const float *row, const float *below)
{
#pragma GCC unroll 4
    for (int j = 0; j < num_vectors; j++) {
        __builtin_prefetch(row + j * WIDTH, 1);
        __builtin_prefetch(below + j * WIDTH, 0, 2);
    }
    __builtin_prefetch(row + num_vectors * WIDTH - 1, 1); /* if not aligned */
    __builtin_prefetch(below + num_vectors * WIDTH - 1, 0, 2);
}

/* The same for any depth, fetching on the side: the tile of c (and of aux, unless NULL), to be
 * there at the end; with by_rows the next panel of a; and what the block says is needed next. */
ALWAYS_INLINE void multiply_and_fetch(const int num_vectors, const bool by_rows, int64_t depth,
                                      const float *restrict a, int64_t stride_a,
                                      const float *restrict b, int64_t stride_b,
                                      tile_vec acc[MR][NV], const float *c, int64_t ldc,
                                      const float *aux, int64_t ldaux, struct fetch_cursor *cursor)
{
    int64_t p = 0;
    for (int row = 0; p + STEP <= depth; p += STEP, row++) {
        if (row < MR) {
            fetch_row(num_vectors, c + row * ldc, c + (MR + row) * ldc);
            if (aux != NULL)
                fetch_row(num_vectors, aux + row * ldaux, aux + (MR + row) * ldaux);
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

/* What the product does to a vector v of its result. aux: what lies there, or what to keep there.
 */
ALWAYS_INLINE tile_vec finish_vector(const tri_gemm_epilogue epilogue, tile_vec v, tile_vec bias,
                                     tile_vec *aux)
{
    if (epilogue == TRI_GEMM_PLAIN)
        return v;
    if (epilogue == TRI_GEMM_BIAS)
        return v + bias;
    if (epilogue == TRI_GEMM_GELU_GRAD)
        return v * fvec_gelu_grad(*aux);
    *aux = v + bias;
    return fvec_gelu(*aux);
}

/* The sums of some columns of a row, and where they go. */
typedef struct row_end {
    const float *sums;
    float *c, *aux;
    const float *bias;
    float alpha;
    bool load_c;
} row_end;

/* WIDTH columns from j on. */
ALWAYS_INLINE void finish_columns(const tri_gemm_epilogue epilogue, const row_end *row, int64_t j)
{
    tile_vec none = {0}, kept = none;
    tile_vec old = row->load_c ? load(row->c + j) : none;
    if (epilogue == TRI_GEMM_GELU_GRAD)
        kept = load(row->aux + j);
    bool biased = epilogue == TRI_GEMM_BIAS || epilogue == TRI_GEMM_BIAS_GELU;
    tile_vec v = old + row->alpha * load(row->sums + j);
    store(row->c + j, finish_vector(epilogue, v, biased ? load(row->bias + j) : none, &kept));
    if (epilogue == TRI_GEMM_BIAS_GELU && row->aux != NULL)
        store(row->aux + j, kept);
}

/* The last columns, fewer than WIDTH: the same arithmetic on a copy. */
static void finish_rest(const tri_gemm_epilogue epilogue, const row_end *row, int64_t j,
                        int64_t cols)
{
    float c[WIDTH] = {0}, aux[WIDTH] = {0}, bias[WIDTH] = {0}, sums[WIDTH] = {0};
    row_end copy = {sums, c, row->aux != NULL ? aux : NULL, bias, row->alpha, row->load_c};
    size_t bytes = (size_t)cols * sizeof(float);
    memcpy(sums, row->sums + j, bytes);
    if (row->load_c)
        memcpy(c, row->c + j, bytes);
    if (row->bias != NULL)
        memcpy(bias, row->bias + j, bytes);
    if (epilogue == TRI_GEMM_GELU_GRAD)
        memcpy(aux, row->aux + j, bytes);
    finish_columns(epilogue, &copy, 0);
    memcpy(row->c + j, c, bytes);
    if (epilogue == TRI_GEMM_BIAS_GELU && row->aux != NULL)
        memcpy(row->aux + j, aux, bytes);
}

ALWAYS_INLINE void finish_rows(const tri_gemm_epilogue epilogue, const tri_gemm_block *block,
                               row_end row, int64_t step, int64_t rows, int64_t cols)
{
    for (int64_t i = 0; i < rows; i++) {
        int64_t j = 0;
        for (; j + WIDTH <= cols; j += WIDTH)
            finish_columns(epilogue, &row, j);
        if (j < cols)
            finish_rest(epilogue, &row, j, cols - j);
        row.sums += step;
        row.c += block->ldc;
        if (row.aux != NULL)
            row.aux += block->ldaux;
    }
}

/* From sums that are in the first-level cache, step apart, to c and aux: rows x cols of the block
 * from (i, j) on. */
static void finish(const tri_gemm_block *block, const float *sums, int64_t step, int64_t i,
                   int64_t j, int64_t rows, int64_t cols)
{
    row_end row = {.sums = sums,
                   .c = block->c + i * block->ldc + j,
                   .aux = block->aux != NULL ? block->aux + i * block->ldaux + j : NULL,
                   .bias = block->bias != NULL ? block->bias + j : NULL,
                   .alpha = block->alpha,
                   .load_c = block->load_c};
    switch (block->epilogue) {
    case TRI_GEMM_PLAIN:
        finish_rows(TRI_GEMM_PLAIN, block, row, step, rows, cols);
        break;
    case TRI_GEMM_BIAS:
        finish_rows(TRI_GEMM_BIAS, block, row, step, rows, cols);
        break;
    case TRI_GEMM_BIAS_GELU:
        finish_rows(TRI_GEMM_BIAS_GELU, block, row, step, rows, cols);
        break;
    case TRI_GEMM_GELU_GRAD:
        finish_rows(TRI_GEMM_GELU_GRAD, block, row, step, rows, cols);
        break;
    }
}

/* A tile of the block: its place in c, its operands. */
typedef struct tile {
    int64_t i, j, rows, cols;
    const float *a, *b;
    int64_t stride_a, stride_b;
} tile;

ALWAYS_INLINE void run_tile(const int num_vectors, const bool by_rows, const tri_gemm_block *block,
                            const tile *t, struct fetch_cursor *cursor)
{
    const int64_t ldc = block->ldc;
    float *c = block->c + t->i * ldc + t->j;
    const bool plain = block->epilogue == TRI_GEMM_PLAIN;
    const float *aux = plain || block->aux == NULL ? NULL : block->aux + t->i * block->ldaux + t->j;
    tile_vec acc[MR][NV];
#pragma GCC unroll 16
    for (int i = 0; i < MR; i++) {
#pragma GCC unroll 4
        for (int j = 0; j < num_vectors; j++)
            acc[i][j] = (tile_vec){0};
    }
    multiply_and_fetch(num_vectors, by_rows, block->depth, t->a, t->stride_a, t->b, t->stride_b,
                       acc, c, ldc, aux, block->ldaux, cursor);
    const bool simple = plain || block->epilogue == TRI_GEMM_BIAS;
    if (!simple || t->rows < MR || t->cols < num_vectors * WIDTH) {
        _Alignas(64) float sums[MR * NR];
        /* Unrolled like the rest: an index known only at run time would force acc into memory. */
#pragma GCC unroll 16
        for (int i = 0; i < MR; i++) {
#pragma GCC unroll 4
            for (int j = 0; j < num_vectors; j++)
                store(sums + i * NR + j * WIDTH, acc[i][j]);
        }
        finish(block, sums, NR, t->i, t->j, t->rows, t->cols);
        return;
    }
    const float alpha = block->alpha;
    const bool load_c = block->load_c;
    tile_vec bias[NV];
#pragma GCC unroll 4
    for (int j = 0; j < num_vectors; j++)
        bias[j] = plain ? (tile_vec){0} : load(block->bias + t->j + j * WIDTH);
#pragma GCC unroll 16
    for (int i = 0; i < MR; i++) {
#pragma GCC unroll 4
        for (int j = 0; j < num_vectors; j++) {
            float *out = c + i * ldc + j * WIDTH;
            tile_vec old = load_c ? load(out) : (tile_vec){0};
            tile_vec v = old + alpha * acc[i][j];
            store(out, plain ? v : v + bias[j]);
        }
    }
}

/* These two exist so that the micro kernel is compiled for each constant it needs, and for no
 * more. */
static void run_tile_by_rows(const tri_gemm_block *block, const tile *t,
                             struct fetch_cursor *cursor)
{
    if (t->cols > 2 * WIDTH && NV > 2)
        run_tile(NV, true, block, t, cursor);
    else if (t->cols > WIDTH)
        run_tile(2, true, block, t, cursor);
    else
        run_tile(1, true, block, t, cursor);
}

static void run_tile_by_columns(const tri_gemm_block *block, const tile *t,
                                struct fetch_cursor *cursor)
{
    if (t->cols > 2 * WIDTH && NV > 2)
        run_tile(NV, false, block, t, cursor);
    else if (t->cols > WIDTH)
        run_tile(2, false, block, t, cursor);
    else
        run_tile(1, false, block, t, cursor);
}

static struct fetch_cursor start_cursor(const tri_gemm_block *block)
{
    struct fetch_cursor cursor = {.ahead = block->ahead, .end = block->ahead};
    int64_t lines = 0;
    for (int i = 0; i < TRI_GEMM_AHEAD && block->ahead[i].rows > 0; i++, cursor.end++)
        lines += block->ahead[i].rows * ((block->ahead[i].cols + LINE - 1) / LINE);
    int64_t tiles = ((block->rows + MR - 1) / MR) * ((block->cols + NR - 1) / NR);
    int64_t steps = tiles * (block->depth / STEP);
    if (steps > 0 && lines > 0) {
        cursor.lines_per_step = (lines + steps - 1) / steps;
        cursor.wait_steps = steps - lines / cursor.lines_per_step;
    }
    return cursor;
}

/* One tile of the panel that t is about, its rows of a taken from where the block has them. */
static void run_tile_of(const tri_gemm_block *block, tile *t, struct fetch_cursor *cursor)
{
    t->rows = min_i64(MR, block->rows - t->i);
    if (t->rows < MR && block->a_edge != NULL) {
        t->a = block->a_edge;
        t->stride_a = MR;
        run_tile_by_columns(block, t, cursor);
        return;
    }
    t->a = block->a + t->i / MR * block->a_panel;
    t->stride_a = block->a_row == 1 ? block->a_depth : block->a_row;
    if (block->a_row == 1)
        run_tile_by_columns(block, t, cursor);
    else
        run_tile_by_rows(block, t, cursor);
}

/* Columns outside, rows inside: a panel of b stays in the first-level cache while the panels of a
 * stream past it from the second. */
static void run_block(const tri_gemm_block *block)
{
    struct fetch_cursor cursor = start_cursor(block);
    const float *packed = block->b;
    int64_t cols;
    for (int64_t j = 0; j < block->cols; j += cols, packed += block->b_panel) {
        cols = panel_cols(block->cols - j);
        tile t = {.j = j, .cols = cols, .b = block->b + j, .stride_b = block->b_depth};
        if (block->b_panel != 0)
            t.b = packed;
        if (block->b_edge != NULL && j + cols == block->cols) {
            t.b = block->b_edge;
            t.stride_b = NR;
        }
        for (; t.i < block->rows; t.i += MR)
            run_tile_of(block, &t, &cursor);
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
    if (block->epilogue != TRI_GEMM_PLAIN)
        finish(block, block->c, block->ldc, 0, 0, block->rows, block->cols);
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
