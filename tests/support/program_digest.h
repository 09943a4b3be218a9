/* A step program as text in which nothing depends on how the library holds it: names of operators,
 * values and spaces, sizes, offsets, ranks. What two revisions must agree on, if nothing moved. */
#ifndef TRI_TESTS_PROGRAM_DIGEST_H
#define TRI_TESTS_PROGRAM_DIGEST_H

#include "program/program.h"

/* A text for each question, so that a difference says what changed. */
typedef enum digest_part {
    DIGEST_OPERATORS, /* segments and instructions: operator, attributes, types and shapes */
    DIGEST_NAMES,     /* of their operands */
    DIGEST_ADDRESSES, /* of their operands, scratch and states */
    DIGEST_TIMELINE,  /* calls with their frames, and what is under way beside them */
    DIGEST_MESSAGES,  /* in the order of the timeline: who takes part, and how much travels */
    DIGEST_PARTS
} digest_part;
extern const char *const digest_part_names[DIGEST_PARTS];

/* Adds a program to the text of each part. */
void digest_program(const tri_program *program, tri_text text[DIGEST_PARTS]);

/* Adds the totals of a program: the rest of a line about instructions, then a line each for the
 * bytes of every space and for the messages, how many and how many bytes in all. */
void digest_totals(const tri_program *program, tri_text *text);

#endif
