/* Numbers of the messages of a step that are the same on all ranks that take part: they follow from
 * the group of a message and its place in the step, so nobody need be asked. */
#ifndef TRI_RUN_MESSAGE_NUMBERS_H
#define TRI_RUN_MESSAGE_NUMBERS_H

#include "program/program.h"

typedef struct tri_message_numbers {
    const tri_program *program;
    /* In the order of the timeline: those of a call begin at first_of_call[call], and an
     * instruction's is the place[instr]-th of them. */
    uint64_t *number;
    uint32_t *first_of_call, *place;
} tri_message_numbers;

/* The program must outlive them. False: no memory; fini is due all the same. */
bool tri_message_numbers_init(tri_message_numbers *numbers, const tri_program *program);
void tri_message_numbers_fini(tri_message_numbers *numbers);
/* Of an instruction in a call: not 0 where it leads a message between ranks that runs. */
uint64_t tri_message_number(const tri_message_numbers *numbers, size_t call, uint32_t instr);
/* A number for both. */
uint64_t tri_message_mix(uint64_t sum, uint64_t value);

#endif
