/* Quantities as people type them after a flag: "15.6T", "1GB", "5us", "400Gb/s", "50%". The flag's
 * name goes into the message when the text is something else. */
#ifndef TRI_CLI_QUANTITY_H
#define TRI_CLI_QUANTITY_H

#include "base/error.h"
#include "mesh/devices.h"

/* Tokens, parameters, FLOP/s: 300e9, 175B, 15.6T, 16M, 8k. Above 0, and at most 1e30. */
tr_status tri_quantity_count(const char *flag, const char *text, double *value, tr_error *err);
/* 1GB, 10kB, 64KiB, 1e9. Above 0. */
tr_status tri_quantity_bytes(const char *flag, const char *text, double *bytes, tr_error *err);
/* 5us, 1.5ms, 0.001s; a number alone is microseconds. 0 or more. */
tr_status tri_quantity_seconds(const char *flag, const char *text, double *seconds, tr_error *err);
/* 5.2s, 10min, 3h, 30d, 6y: with its unit. Above 0. */
tr_status tri_quantity_duration(const char *flag, const char *text, double *seconds, tr_error *err);
/* 50GB/s, 400Gb/s, 1TB/s. Above 0. */
tr_status tri_quantity_rate(const char *flag, const char *text, double *bytes_per_s, tr_error *err);
/* 0.5 or 50%: above 0 and at most 1. */
tr_status tri_quantity_share(const char *flag, const char *text, double *share, tr_error *err);
/* The same, or 0. */
tr_status tri_quantity_part(const char *flag, const char *text, double *part, tr_error *err);
/* A plain number from least to most. */
tr_status tri_quantity_number(const char *flag, const char *text, double least, double most,
                              double *value, tr_error *err);

/* A device by its name in the table, or described (mesh/devices.h): that is put into own. */
tr_status tri_quantity_device(const char *text, tri_device_spec *own,
                              const tri_device_spec **device, tr_error *err);
/* A link by its name in the table, or a rate, which is put into own. */
tr_status tri_quantity_link(const char *text, tri_link_spec *own, const tri_link_spec **link,
                            tr_error *err);

#endif
