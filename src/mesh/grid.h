/* The grid of a mesh: its factors, made from the layout. */
#ifndef TRI_MESH_GRID_H
#define TRI_MESH_GRID_H

#include "graph/grid.h"
#include "mesh/mesh.h"

/* The coarsest grid of which every axis of the mesh is a product, and a rank's place in it. An axis
 * of one rank has no factor, but kv: where tp is kv x kv_copy, both are there, so that what lies
 * over key heads is told apart from what lies over tp. */
tr_status tri_mesh_grid(const tri_mesh *mesh, int rank, tri_grid *grid, tr_error *err);

#endif
