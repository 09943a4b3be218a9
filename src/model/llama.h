/* Llama and its relatives: their settings (llama_settings.c), for the model itself (llama.c). */
#ifndef TRI_MODEL_LLAMA_H
#define TRI_MODEL_LLAMA_H

#include "model/model.h"

enum { TRI_NUM_LLAMA_ROWS = 36 };
extern const tri_setting tri_llama_rows[];
void tri_llama_read(const tr_settings *settings, tri_model_config *config);

#endif
