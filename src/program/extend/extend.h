/* A program of more equal layers than were compiled.
 *
 * Two programs of one stage differ by a layer in each of its chunks. Where the longer one is the
 * shorter one with pieces put in that repeat what is right before them, and every address grows by
 * the same bytes, further layers put in the same pieces again. What lies in `work` has no address
 * that follows from others: pieces of memory are repeated with their lifetimes, and placed anew.
 * Whatever differs otherwise does not fit, and the stage has to be compiled whole. */
#ifndef TRI_PROGRAM_EXTEND_H
#define TRI_PROGRAM_EXTEND_H

#include "program/program.h"

/* `more` with so many steps more, of a layer in each chunk; *fits is false where that cannot be
 * told from the two, which were built with keep_pieces. A program for timing and for adding up
 * memory, without a timeline (tri_program_retime makes one): it borrows values, and names of these,
 * from `more`, which must outlive it. */
tr_status tri_program_extend(const tri_program *less, const tri_program *more, uint32_t steps,
                             tri_program *to, bool *fits, tr_error *err);
void tri_program_extend_fini(tri_program *program);

#endif
