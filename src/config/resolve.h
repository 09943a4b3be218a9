/* From settings to the small structs of each folder. */
#ifndef TRI_CONFIG_RESOLVE_H
#define TRI_CONFIG_RESOLVE_H

#include "train/session.h"
#include "trireme/settings.h"

/* Fills in what other settings decide (a preset's sizes, the vocabulary of the data ...), so that
 * the settings, written out, describe the run completely. */
tr_status tri_settings_complete(tr_settings *settings, tr_error *err);

/* Strings in config point into the settings. */
tr_status tri_session_config_from(const tr_settings *settings, tri_session_config *config,
                                  tr_error *err);

/* What data is to be read, before the settings are complete: it may have to be prepared first. */
tr_status tri_data_config_from(tr_settings *settings, tri_data_config *data, tr_error *err);

#endif
