/* What the files that print a program share. */
#ifndef TRI_PROGRAM_TEXT_PARTS_H
#define TRI_PROGRAM_TEXT_PARTS_H

#include "program/messages.h"

/* "work+1f00" */
void tri_text_address(const tri_program *program, uint32_t space, uint64_t offset, char *out,
                      size_t size);
/* What an instruction that leads a message says of it, in brackets; nothing for others. */
void tri_text_message(const tri_program *program, size_t instr, tri_text *text);
/* What travels in a step: how often, and of how large a whole (each rank sends (N-1)/N of it in a
 * gather or a scatter over N ranks, twice that in an all-reduce). */
void tri_text_traffic(const tri_program *program, tri_text *text);

/* The lists of calls that run as one. */
void tri_text_pairs(const tri_program *program, bool all, tri_text *text);

#endif
