/* A layout in words, for the first lines of a run. */
#ifndef TRI_CONFIG_LAYOUT_WORDS_H
#define TRI_CONFIG_LAYOUT_WORDS_H

#include "base/text.h"
#include "compile/compile.h"

/* The share of its time that the rank of the pipeline idles that idles most, when a forward, and
 * both halves of a backward, take equally long. 0 without a pipeline, or when it cannot be said. */
double tri_layout_bubble(const tri_compile_config *config);

/* "4 ranks: 2 pipeline stages (1f1b, 4 micro-batches, 20 % bubble) x 2 data-parallel (ZeRO 3)" */
void tri_layout_words(const tri_compile_config *config, tri_text *text);

#endif
