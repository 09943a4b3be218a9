/* The grid of a mesh: its factors, made from the layout. */
#ifndef TRI_MESH_GRID_H
#define TRI_MESH_GRID_H

#include "graph/grid.h"
#include "mesh/mesh.h"
#include "mesh/rank_group.h"

/* The coarsest grid of which every axis of the mesh is a product, and a rank's place in it. An axis
 * of one rank has no factor, but kv: where tp is kv x kv_copy, both are there, so that what lies
 * over key heads is told apart from what lies over tp. */
tr_status tri_mesh_grid(const tri_mesh *mesh, int rank, tri_grid *grid, tr_error *err);

/* This rank, by its coordinates. */
int tri_grid_rank(const tri_grid *grid);
/* The ranks that differ from this one only along the factors of an axis (a row of grid->axis), in
 * the order of their places: the slowest factor counts most, unless the row has another order. */
tri_rank_group tri_grid_group(const tri_grid *grid, int axis);
/* Some of the ranks along pp, by their coordinates on it, of which this rank's is one. */
tri_rank_group tri_grid_homes(const tri_grid *grid, const uint32_t *places, uint32_t num_places);

#endif
