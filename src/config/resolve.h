/* From settings to the small structs of each folder. */
#ifndef TRI_CONFIG_RESOLVE_H
#define TRI_CONFIG_RESOLVE_H

#include "train/run/run.h"
#include "train/session.h"
#include "trireme/settings.h"

/* Fills in what other settings decide (a preset's sizes, the vocabulary of the data ...), so that
 * the settings, written out, describe the run completely. */
tr_status tri_settings_complete(tr_settings *settings, tr_error *err);

/* Ranks of the layout: the product of its axes. */
int64_t tri_settings_num_ranks(const tr_settings *settings);

/* Strings in config point into the settings. */
tr_status tri_session_config_from(const tr_settings *settings, tri_session_config *config,
                                  tr_error *err);

/* How a run goes about its session. Strings point into the settings, which are kept in it, too, and
 * must stay as they are while it runs. Wishes are the caller's. */
void tri_run_config_from(const tr_settings *settings, tri_run_config *config);

/* Sets how many ranks hold a key head, where there are fewer of them than ranks; refuses numbers of
 * ranks that do not go with them. */
tr_status tri_divide_key_heads(tri_compile_config *compile, tr_error *err);

/* How tokens are divided over layout.cp, and attention over that; refuses what does not go with the
 * model. After tri_divide_key_heads. */
/* offload.c: where moments, masters and activations rest */
tr_status tri_offload_config(const tr_settings *settings, tri_session_config *config,
                             tr_error *err);
/* experts.c */
tr_status tri_experts_config(const tr_settings *settings, tri_compile_config *compile,
                             tr_error *err);
/* context.c */
tr_status tri_context_config(const tr_settings *settings, tri_session_config *config,
                             tr_error *err);

/* Bytes of run.memory_limit; 0: none. */
tr_status tri_memory_limit_from(const tr_settings *settings, uint64_t *bytes, tr_error *err);

/* What data is to be read; the strings point into the settings, which are complete. */
void tri_data_config_read(const tr_settings *settings, tri_data_config *data);

/* The same before they are: it may have to be prepared first. */
tr_status tri_data_config_from(tr_settings *settings, tri_data_config *data, tr_error *err);

#endif
