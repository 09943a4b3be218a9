/* Proof that the programs of all ranks fit each other. */
#ifndef TRI_PROGRAM_MATCH_H
#define TRI_PROGRAM_MATCH_H

#include "program/program.h"

/* Runs the ranks' messages against each other: a rank issues its messages in program order, and a
 * collective ends when all members of its group have issued it. Once each group has a lane of its
 * own; and once a message begins when the one before it has ended, whatever its group. All must
 * finish both times, and the members of a group must agree on the operation, the value, the type,
 * the size and who has which part.
 * programs[r] is of rank r of num_ranks; the error names the two instructions. */
tr_status tri_programs_match(const tri_program *const *programs, int num_ranks, tr_error *err);

#endif
