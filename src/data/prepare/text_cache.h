/* Text that training is given together with a tokenizer is prepared once, into a directory of the
 * run, and used again for as long as nothing has changed. */
#ifndef TRI_DATA_PREPARE_TEXT_CACHE_H
#define TRI_DATA_PREPARE_TEXT_CACHE_H

#include "data/data.h"

/* Whether a text (config->source is one) cannot be read as plain bytes where it lies: there is a
 * tokenizer other than bytes, or it is JSONL or compressed. */
bool tri_text_cache_needed(const tri_data_config *config);

/* Prepares the text unless that has been done; *dir, on the heap, is where the tokens are. Only one
 * process does it, the others wait. */
tr_status tri_text_cache_fill(const tri_data_config *config, char **dir, tr_error *err);

#endif
