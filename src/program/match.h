/* Proof that the programs of all ranks fit each other. */
#ifndef TRI_PROGRAM_MATCH_H
#define TRI_PROGRAM_MATCH_H

#include "mesh/mesh.h"
#include "program/program.h"

/* Runs the ranks' messages against each other: a rank issues its messages in program order, and a
 * collective ends when all members of its group have issued it. All must finish, and the members
 * of a group must agree on the operation, the value, the type and the size. programs[r] is of rank
 * r; the error names the two instructions. */
tr_status tri_programs_match(const tri_program *const *programs, const tri_mesh *mesh,
                             tr_error *err);

/* Bytes that a message of this instruction (and those that ride with it) is about: of the whole
 * vector, whoever has which part of it. */
uint64_t tri_message_whole_bytes(const tri_program *program, const tri_instr *instr);

/* The ranks that a message of this rank is between, in a common order; members has room for all of
 * the mesh. Returns their number. */
int tri_message_group(const tri_mesh *mesh, int rank, const tri_instr *instr, int *members);

#endif
