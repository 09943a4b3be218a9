/* What verbs print with --json, where that is more than a few lines. */
#ifndef TRI_CLI_DOC_DOCS_H
#define TRI_CLI_DOC_DOCS_H

#include "ckpt/compare.h"
#include "cli/doc/json_doc.h"
#include "cli/sim/verb_sim.h"
#include "place/calc/calc.h"
#include "train/session.h"
#include "trireme/settings.h"

/* "notes": what tri_print_notes says. */
void tri_doc_notes(json_t *doc, const tr_settings *settings, const tri_session *session);
/* "model": what kind, and how large. */
void tri_doc_model(json_t *doc, const tri_session *session);

/* plan_doc.c: params and ledger add these lists. */
tr_status tri_doc_plan(json_t *doc, const tri_session *session, bool params, bool ledger,
                       tr_error *err);

/* page_doc.c: "memory", "messages" and "addresses" of a rank, for pages. */
tr_status tri_doc_page(json_t *doc, const tri_session *session, tr_error *err);

/* explain_doc.c. A program; brief: without its instructions. */
void tri_doc_program(json_t *doc, const tri_session *session, int which, bool brief);
void tri_doc_operators(json_t *doc);

/* sim_doc.c. Times of a schedule; those of all schedules that can have such sizes. */
void tri_doc_sim(json_t *doc, const tri_sim_case *c, const char *unit);
void tri_doc_sim_row(json_t *list, const tri_order *order, const tri_sim_case *c,
                     const tri_order_facts *facts); /* c NULL: it cannot have such sizes */
void tri_doc_schedules(json_t *doc);

/* place_doc.c: what the calculator found, an item each. */
void tri_doc_array(json_t *list, const tri_calc *calc, const tri_calc_array *array);
void tri_doc_moves(json_t *list, const tri_calc *calc, const tri_calc_array *from,
                   const tri_calc_array *to, const tri_calc_moves *moves);
void tri_doc_product(json_t *list, const tri_calc *calc, const tri_calc_product *product,
                     const char *phase); /* of training, or NULL */
tr_status tri_doc_states(json_t *list, const tri_calc *calc, double num_params, int64_t group,
                         tr_error *err);
void tri_doc_devices(json_t *doc);

/* ckpt_doc.c */
void tri_doc_checkpoint(json_t *doc, const tri_checkpoint *ckpt);
/* "checkpoints": those of a folder, or of the folder ckpt of a run; none when there are none. */
tr_status tri_doc_checkpoints(json_t *doc, const char *dir, tr_error *err);
tr_status tri_doc_run_checkpoints(json_t *doc, const char *run_dir, tr_error *err);
/* "files", with their tensors; of a Hugging Face directory also what its config.json says. */
tr_status tri_doc_tensors(json_t *doc, const char *path, bool is_hf, tr_error *err);
void tri_doc_difference(json_t *list, const tri_difference *difference);
/* Files with shards in them: one for each rank that wrote; and the bytes of all files. */
size_t tri_ckpt_num_writers(const tri_manifest *manifest);
double tri_ckpt_num_bytes(const tri_manifest *manifest);

#endif
