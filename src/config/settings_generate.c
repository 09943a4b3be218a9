/* The settings of generated texts: a part of the table that all runs have (settings_table.c). */
#include "config/settings_table.h"

#define BOOL    TRI_BOOL_ROW
#define INT     TRI_INT_ROW
#define FLOAT   TRI_FLOAT_ROW
#define STRING  TRI_STRING_ROW
#define BILLION TRI_BILLION
#define TWO_53  9007199254740992.0 /* as in settings_table.c */

const tri_setting tri_generate_settings[] = {
    STRING("generate.prompt", "", "Text to continue", "start text input"),
    INT("generate.tokens", "200", 0, 1000000, "Tokens to generate",
        "max_new_tokens max_tokens num_tokens length n"),
    FLOAT("generate.temperature", "0.8", 0, 100,
          "Spread of the choice of tokens; 0 always takes the likeliest", "temp"),
    INT("generate.top_k", "0", 0, 1000000,
        "Choose among this many likeliest tokens; 0 is all of them", "topk k"),
    FLOAT("generate.top_p", "1", 0, 1,
          "Choose among the likeliest tokens that together have this probability; 1 is all",
          "topp nucleus p"),
    FLOAT("generate.min_p", "0", 0, 1,
          "Choose among tokens with at least this share of the likeliest's probability; 0 is all",
          "minp"),
    FLOAT("generate.repetition", "1", 0.01, 100,
          "Makes tokens that have occurred less likely; 1 is off",
          "repetition_penalty repeat_penalty penalty frequency_penalty"),
    INT("generate.seed", "1", 0, TWO_53, "Seed of the choice of tokens", NULL),
    INT("generate.samples", "1", 1, 1000000, "Texts for each prompt",
        "num_samples num_return_sequences best_of"),
    STRING("generate.stop", "",
           "Texts that end the generation and are left out, divided by ; (\\n is a line end)",
           "stop_strings stop_sequences stop_words"),
    BOOL("generate.eos", "true", "Stop at the token that ends a text",
         "stop_at_eos ignore_eos eos_token_id"),
    INT("generate.batch", "8", 1, 100000, "Texts that are made at a time, at most",
        "batch_size num_rows max_num_seqs"),
    INT("generate.context", "0", 0, BILLION,
        "Positions that are kept of a text; 0 is all, as far as the model has positions",
        "max_model_len max_context n_ctx kv_len"),
    INT("generate.prefill", "128", 32, 1000000, "Tokens of a prompt that are taken at a time",
        "prefill_chunk chunk_size n_batch"),
    BOOL("generate.cache", "true",
         "Keep keys and values of earlier tokens; false computes them again for every token",
         "use_cache kv_cache past_key_values"),
};

const int tri_num_generate_settings = sizeof tri_generate_settings / sizeof *tri_generate_settings;
