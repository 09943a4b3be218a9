/* Shared by the kernels of attention by places: operands, heads, who sees whom, tiles of keys.
 *
 * As in attention.h, a block of queries lies in the lanes, and keys come in tiles. Each query sees
 * the places [low, high). Keys that have no places of their own lie in the order of their places
 * (in a cache, around a ring), so tiles run over what a block of queries sees, and nothing else.
 * Otherwise a tile is left out by its least and greatest place, which are found once a call.
 *
 * Tiles of keys in order begin at multiples of KEYS (and where a ring begins again), and a key that
 * a query does not see changes nothing: so a query's result depends on its place and on what it
 * sees, not on what came along with it. */
#ifndef TRI_DEVICE_CPU_FAST_PLACES_H
#define TRI_DEVICE_CPU_FAST_PLACES_H

#include "device/cpu/fast/attention.h"

typedef struct places_shape {
    const tri_kernel_args *args;
    const float *q, *k, *v, *sink; /* of head 0 of row 0 */
    const int32_t *rows, *docs, *span, *q_places, *k_places;
    int64_t num_batch, num_queries, num_keys, heads, key_heads, group;
    int64_t k_width, v_width;       /* of q and k; of v and o */
    int64_t q_step, k_step, v_step; /* from one token to the next */
    int64_t k_head, v_head;         /* from one head to the next */
    int64_t k_row, v_row, num_rows; /* of the batch, or of the cache */
    bool cached, causal;
    int64_t window;
    float alpha, cap;
    float dropout, keep_scale;
    uint32_t threshold;
    philox_key key;
    int64_t global_heads, first_head;
    uint64_t global_queries, global_keys;
    int64_t num_tiles; /* of keys that have places */
} places_shape;

typedef struct places_head {
    int64_t row, index; /* of the batch, of the heads */
    const float *q, *k, *v;
    bool there;          /* the cache has its row */
    uint64_t first_word; /* global index of the weight of place 0 at place 0 */
} places_head;

/* Layout of keys and values, packed, apart or cached. */
static inline void places_set_keys(places_shape *s, const tri_tensor *in, bool apart)
{
    s->k_head = s->cached ? s->num_keys * s->k_width : s->k_width;
    s->v_head = s->cached ? s->num_keys * s->v_width : s->v_width;
    s->k_step = !apart ? s->q_step : s->cached ? s->k_width : s->key_heads * s->k_width;
    s->v_step = !apart ? s->q_step : s->cached ? s->v_width : s->key_heads * s->v_width;
    s->k_row = s->cached ? s->key_heads * s->k_head : s->num_keys * s->k_step;
    s->v_row = s->cached ? s->key_heads * s->v_head : s->num_keys * s->v_step;
    if (s->q) { /* not when sizes alone are asked for */
        s->k = apart ? in[1].data : s->q + s->heads * s->k_width;
        s->v = apart ? in[2].data : s->k + s->heads * s->k_width;
    }
}

/* in: q, k, v of the operator; more: rows and what follows. */
static inline places_shape places_shape_of(const tri_kernel_args *args, const tri_tensor *in,
                                           const tri_tensor *more)
{
    const tri_attention_attr *attr = &args->attr->attention;
    const bool packed = in[0].rank == 5, apart = in[1].count > 0;
    const int tokens = attr->cached ? 2 : 1, heads_dim = in[0].rank - 2;
    const float p = attr->dropout;
    places_shape s = {.args = args,
                      .q = in[0].data,
                      .rows = more[0].data,
                      .docs = more[2].data,
                      .span = more[3].data,
                      .q_places = more[4].data,
                      .k_places = more[5].data,
                      .sink = more[6].data,
                      .num_batch = in[0].size[0],
                      .num_queries = in[0].size[1],
                      .num_keys = apart ? in[1].size[tokens] : in[0].size[1],
                      .heads = in[0].size[heads_dim],
                      .key_heads = apart ? in[1].size[3 - tokens] : in[0].size[heads_dim],
                      .k_width = in[0].size[heads_dim + 1],
                      .v_width = apart ? in[2].size[3] : in[0].size[heads_dim + 1],
                      .num_rows = apart ? in[1].size[0] : in[0].size[0],
                      .cached = attr->cached,
                      .causal = attr->causal,
                      .window = attr->window,
                      .alpha = attr->alpha,
                      .cap = attr->soft_cap,
                      .dropout = p > 0 ? p : 0,
                      .keep_scale = p > 0 ? 1.0f / (1.0f - p) : 1.0f,
                      .global_heads = in[0].global[heads_dim],
                      .first_head = in[0].origin[heads_dim],
                      .global_queries = (uint64_t)in[0].global[1],
                      .global_keys = (uint64_t)(apart ? in[1].global[tokens] : in[0].global[1])};
    s.group = s.heads / s.key_heads;
    s.q_step = (packed ? 3 : 1) * s.heads * s.k_width;
    s.num_tiles = more[5].count > 0 ? ceil_div(s.num_keys, KEYS) : 0;
    places_set_keys(&s, in, apart);
    if (p > 0 && s.rows) {
        s.threshold = tri_dropout_threshold(p);
        s.key =
            (philox_key){args->seed, (uint32_t)((const int32_t *)more[1].data)[0], attr->stream};
    }
    return s;
}

static inline places_head places_head_of(const places_shape *s, int64_t row, int64_t index)
{
    const int64_t from = s->cached ? s->rows[row] : row;
    places_head head = {.row = row,
                        .index = index,
                        .there = from >= 0 && from < s->num_rows,
                        .q = s->q + row * s->num_queries * s->q_step + index * s->k_width};
    if (head.there) {
        head.k = s->k + from * s->k_row + index / s->group * s->k_head;
        head.v = s->v + from * s->v_row + index / s->group * s->v_head;
    }
    if (s->dropout > 0) {
        int64_t global = s->rows[row] * s->global_heads + index + s->first_head;
        head.first_word = (uint64_t)global * s->global_queries * s->global_keys;
    }
    return head;
}

/* The places that query i of a row of the batch sees: [*low, *high), empty where *high <= *low. */
static inline void places_seen(const places_shape *s, const places_head *head, int64_t i,
                               int32_t *low, int32_t *high)
{
    const int64_t at = head->row * s->num_queries + i;
    const int64_t place = s->q_places ? s->q_places[at] : i;
    int64_t begin = s->window > 0 ? place + 1 - s->window : 0;
    int64_t end = s->causal ? place + 1 : INT32_MAX;
    if (s->span) {
        begin = s->span[2 * at] > begin ? s->span[2 * at] : begin;
        end = min_i64(end, s->span[2 * at + 1]);
    }
    if (!s->k_places && !s->cached)
        end = min_i64(end, s->num_keys);
    if (s->cached && end - s->num_keys > begin)
        begin = end - s->num_keys;
    if (place < 0 || !head->there || end < 0)
        begin = end = 0;
    *low = (int32_t)(begin > 0 ? begin : 0);
    *high = (int32_t)end;
}

/* What each query of a block sees, and what all of them together do. */
typedef struct places_block {
    int64_t first, num;
    int32_t low[QUERIES], high[QUERIES];
    int64_t begin, end;         /* seen by some query */
    int64_t all_begin, all_end; /* seen by every one */
    int32_t docs[QUERIES];      /* with documents; negative: sees nothing */
    uint64_t words[QUERIES];    /* with dropout: index of the weight of place 0 */
} places_block;

static inline void places_block_of(const places_shape *s, const places_head *head, int64_t first,
                                   places_block *b)
{
    b->first = first;
    b->num = min_i64(QUERIES, s->num_queries - first);
    b->begin = b->all_end = INT32_MAX;
    b->end = b->all_begin = 0;
    for (int64_t i = 0; i < QUERIES; i++) {
        const int64_t at = head->row * s->num_queries + first + i;
        const bool real = i < b->num;
        b->low[i] = b->high[i] = 0;
        if (real)
            places_seen(s, head, first + i, &b->low[i], &b->high[i]);
        b->docs[i] = real && s->docs && s->docs[at] >= 0 ? s->docs[at] : -1;
        if (s->dropout > 0) {
            int64_t place = !real ? 0 : s->q_places ? s->q_places[at] : first + i;
            b->words[i] = head->first_word + (uint64_t)(place > 0 ? place : 0) * s->global_keys;
        }
        if (real && b->low[i] < b->high[i]) {
            b->begin = min_i64(b->begin, b->low[i]);
            b->end = b->high[i] > b->end ? b->high[i] : b->end;
        }
        if (real) {
            b->all_begin = b->low[i] > b->all_begin ? b->low[i] : b->all_begin;
            b->all_end = min_i64(b->all_end, b->high[i]);
        }
    }
}

/* ---- tiles of keys ---- */

/* Of a tile of keys that have places: those that are there, and all. */
typedef struct tile_bounds {
    int32_t least, greatest;
    int32_t lowest; /* negative: one of them is not there */
} tile_bounds;

typedef struct key_tile {
    int64_t at, num; /* the keys as they lie */
    int32_t place[KEYS];
    bool hidden; /* some query does not see some key */
} key_tile;

static inline tile_bounds bounds_of(const int32_t *places, int64_t num)
{
    tile_bounds b = {INT32_MAX, -1, INT32_MAX};
    for (int64_t j = 0; j < num; j++) {
        int32_t counted = places[j] >= 0 ? places[j] : INT32_MAX;
        b.least = counted < b.least ? counted : b.least;
        b.greatest = places[j] > b.greatest ? places[j] : b.greatest;
        b.lowest = places[j] < b.lowest ? places[j] : b.lowest;
    }
    return b;
}

/* Bounds of all tiles [batch][tiles], for keys that have places. */
static inline void find_bounds(const places_shape *s, tile_bounds *to)
{
    for (int64_t n = 0; n < s->num_batch * s->num_tiles; n++) {
        const int64_t first = n % s->num_tiles * KEYS;
        to[n] = bounds_of(s->k_places + n / s->num_tiles * s->num_keys + first,
                          min_i64(KEYS, s->num_keys - first));
    }
}

static inline int64_t bounds_floats(const places_shape *s)
{
    return round_up(s->num_batch * s->num_tiles * 3, 16);
}

/* Where the tiles of a block begin; next_tile goes on from there. */
static inline int64_t first_tile(const places_shape *s, const places_block *b)
{
    return s->num_tiles > 0 ? 0 : b->begin;
}

/* The next tile that a query of the block may see; false: there is none. */
static inline bool next_tile(const places_shape *s, const places_head *head, const places_block *b,
                             const tile_bounds *bounds, int64_t *cursor, key_tile *tile)
{
    if (s->num_tiles == 0) {
        const int64_t x = *cursor;
        if (x >= b->end)
            return false;
        tile->at = s->cached ? x % s->num_keys : x;
        tile->num = min_i64(min_i64(KEYS - x % KEYS, b->end - x), s->num_keys - tile->at);
        for (int64_t j = 0; j < tile->num; j++)
            tile->place[j] = (int32_t)(x + j);
        tile->hidden = s->docs || x < b->all_begin || x + tile->num > b->all_end;
        *cursor = x + tile->num;
        return true;
    }
    for (; *cursor < s->num_tiles; ++*cursor) {
        const tile_bounds *of = &bounds[head->row * s->num_tiles + *cursor];
        if (of->greatest < b->begin || of->least >= b->end)
            continue;
        tile->at = *cursor * KEYS;
        tile->num = min_i64(KEYS, s->num_keys - tile->at);
        memcpy(tile->place, s->k_places + head->row * s->num_keys + tile->at,
               (size_t)tile->num * sizeof(int32_t));
        tile->hidden = s->docs || of->lowest < b->all_begin || of->greatest >= b->all_end;
        ++*cursor;
        return true;
    }
    return false;
}

/* Scores that a query may not see become -inf. */
static inline void hide_places(const places_shape *s, const places_head *head,
                               const places_block *b, const key_tile *tile, float *restrict scores)
{
    for (int64_t j = 0; tile->hidden && j < tile->num; j++) {
        const int32_t key = tile->place[j];
        float *row = scores + j * QUERIES;
        for (int i = 0; i < QUERIES; i++)
            row[i] = key >= b->low[i] && key < b->high[i] ? row[i] : -__builtin_inff();
    }
    if (s->docs)
        hide_other_docs(scores, s->docs + head->row * s->num_keys + tile->at, tile->num, b->docs);
}

/* ---- dropout ---- */

/* Whether the keys j .. j + 3 have the four words of one Philox block for every query. */
static inline bool is_quad(const places_shape *s, const key_tile *tile, int64_t j)
{
    const int32_t *place = tile->place + j;
    return s->global_keys % 4 == 0 && j + 4 <= tile->num && place[0] >= 0 && place[0] % 4 == 0 &&
           place[1] == place[0] + 1 && place[2] == place[0] + 2 && place[3] == place[0] + 3;
}

/* The random word of each key and query of a tile; kept where it is at least the threshold. */
static inline void place_words(const places_shape *s, const places_block *b, const key_tile *tile,
                               uint32_t *restrict to)
{
    for (int64_t j = 0; j < tile->num;) {
        const bool quad = is_quad(s, tile, j);
        const uint64_t key = tile->place[j] > 0 ? (uint64_t)tile->place[j] : 0;
        for (int64_t i = 0; i < QUERIES; i += WIDE_LANES) {
            vec_wide index, word[4];
            memcpy(&index, b->words + i, sizeof index);
            index += key;
            philox_wide(&s->key, index >> 2, word);
            if (quad) {
                for (int w = 0; w < 4; w++)
                    store_narrow(to + (j + w) * QUERIES + i, word[w]);
                continue;
            }
            vec_wide which = index & 3, one = {0};
            for (uint64_t w = 0; w < 4; w++)
                one |= (vec_wide)(which == w) & word[w];
            store_narrow(to + j * QUERIES + i, one);
        }
        j += quad ? 4 : 1;
    }
}

/* ---- soft caps ---- */

/* tanh(u) = e / (e + 2) with e = exp(2u) - 1, right to a few roundings of itself near 0 too. */
FVEC_INLINE fvec fvec_tanh(fvec u)
{
    uvec n;
    fvec r = fvec_exp_reduce(fvec_clamp(u + u, -40.0f, 40.0f), &n);
    fvec scale = (fvec)((n + 127u) << 23);
    fvec e = scale * fvec_expm1_reduced(r) + (scale - 1.0f);
    return e / (e + 2.0f);
}

/* s becomes c tanh(s / c); slope, where it is given, the slope there. */
static inline void cap_scores(const places_shape *s, int64_t num_keys, float *scores, float *slope)
{
    const float cap = s->cap, inverse = 1 / s->cap;
    for (int64_t at = 0; at < num_keys * QUERIES; at += FVEC_LANES) {
        fvec t = fvec_tanh(load_lanes(scores + at) * inverse);
        store_lanes(scores + at, cap * t);
        if (slope)
            store_lanes(slope + at, 1.0f - t * t);
    }
}

/* The kernels; attention.c and attention_grad.c hand over what is not a plain batch. */
extern const tri_kernel TRI_ISA_NAME(tri_fast_attention_places);
extern const tri_kernel TRI_ISA_NAME(tri_fast_attention_few);
extern const tri_kernel TRI_ISA_NAME(tri_fast_attention_places_grad);

#endif
