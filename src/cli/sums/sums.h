/* Sums of textbooks, as questions that one types: each is a form of a verb, chosen by a flag. */
#ifndef TRI_CLI_SUMS_SUMS_H
#define TRI_CLI_SUMS_SUMS_H

#include <jansson.h>

#include "base/text.h"
#include "cli/cli.h"
#include "place/calc/calc.h"

/* plan --tokens: FLOP, devices, days, energy and money of a whole run. */
tr_status tri_sums_run(const tri_cli *cli, tr_error *err);

/* plan --goodput: how long a run takes on a cluster that stops now and then. */
tr_status tri_sums_goodput(const tri_cli *cli, tr_error *err);

/* plan --activations: what is kept for the backward, by the published formulas and by the plan. */
tr_status tri_sums_activations(const tri_cli *cli, tr_error *err);

/* place --values: a line carried out with numbers, on threads; an item of list, or text where that
 * is NULL. */
tr_status tri_sums_values(tri_calc *calc, const tri_calc_line *line, const char *typed,
                          tri_text *text, json_t *list, tr_error *err);

/* sim --collective: the time of an operation by every algorithm. */
tr_status tri_sums_collective(const tri_cli *cli, tr_error *err);

/* place --limits: from where on devices are bound by arithmetic; into doc, or text where it is
 * NULL.
 */
tr_status tri_sums_limits(const tri_cli *cli, tri_text *text, json_t *doc, tr_error *err);

/* plan --generation: memory of weights and of keys and values, for rows and lengths. */
tr_status tri_sums_generation(const tri_cli *cli, tr_error *err);

/* The settings of the same model on one rank: without any layout. */
tr_status tri_sums_alone(const tr_settings *settings, tr_settings **alone, tr_error *err);

/* "1.9375 GB": of 10^9, to so many digits. */
const char *tri_sums_bytes(double bytes, int digits, char out[24]);

/* Refuses flags other than those of a list, which ends with NULL: they would change nothing. */
tr_status tri_sums_only(const tri_cli *cli, const char *form, const char *const *flags,
                        tr_error *err);

#endif
