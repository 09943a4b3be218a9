/* The table of a model's parameters: what is trained, initialised, saved and loaded.
 *
 * Logical tensors only: names and shapes here are those of files. Programs of one run (training,
 * evaluation, generation) share one table. */
#ifndef TRI_GRAPH_PARAM_H
#define TRI_GRAPH_PARAM_H

#include "base/arena.h"
#include "base/id.h"
#include "graph/dtype.h"
#include "graph/shape.h"

typedef enum tri_init_kind {
    TRI_INIT_ZERO,
    TRI_INIT_ONE,
    TRI_INIT_NORMAL, /* mean 0, deviation scale */
    TRI_INIT_UNIFORM /* in [-scale, scale) */
} tri_init_kind;

typedef struct tri_init {
    tri_init_kind kind;
    float scale;
} tri_init;

/* What a parameter is for; update rules and placement policies choose by it, never by name. */
typedef enum tri_param_role {
    TRI_ROLE_EMBEDDING, /* table of vectors, looked up by id */
    TRI_ROLE_MATRIX,    /* weight of a product inside a layer: [out dims ..., in dims ...] */
    TRI_ROLE_BIAS,
    TRI_ROLE_NORM,    /* gain or shift of a norm */
    TRI_ROLE_ROUTER,  /* of a router, which computes in f32 */
    TRI_ROLE_EXPERTS, /* matrices of experts, one behind the other: [E, out, in] */
    TRI_ROLE_STEERED  /* bias of a router's selection, f32: moved by loads, without a gradient */
} tri_param_role;

typedef struct tri_param {
    const char *name;
    tri_shape shape;
    uint8_t split; /* dims before it are the rows of the parameter seen as a matrix */
    tri_init init;
    tri_param_role role;
    int layer;
} tri_param;

typedef struct tri_param_table {
    tri_arena arena; /* holds the names */
    tri_param *items;
    size_t count, capacity;
    tri_id *slots; /* a hash table of the names: ids, TRI_NONE where free; at most half full */
    size_t num_slots;
    bool failed; /* memory ran out while it was filled */
} tri_param_table;

void tri_param_table_init(tri_param_table *table);
void tri_param_table_fini(tri_param_table *table);
/* Copies the row, its name included. */
void tri_param_add(tri_param_table *table, tri_param param);
tri_id tri_param_find(const tri_param_table *table, const char *name); /* or TRI_NONE */
/* Whether operators read a copy of this parameter when activations are of this type: 16-bit ones
 * need it, and the gains and shifts of norms stay f32. */
bool tri_param_has_copy(const tri_param *param, tri_dtype compute);
int64_t tri_param_total(const tri_param_table *table); /* number of elements */

#endif
