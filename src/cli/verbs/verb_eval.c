/* trireme eval: how well a trained model predicts text that it has not seen. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "api/evaluate.h"
#include "api/texts.h"
#include "ckpt/hf/hf.h"
#include "cli/cli.h"
#include "cli/doc/json_doc.h"
#include "cli/text.h"
#include "cli/verbs/prompts.h"
#include "cli/verbs/weights.h"
#include "config/plugins.h"

enum { USUAL_SEQ_LEN = 1024 };

static void print_table(const tri_evaluation *e, const char *what, const char *weights)
{
    double mean = e->loss / e->num_targets;
    char text[16];
    tri_text_print(stdout, "%-20s %s\n%-20s %s\n", "weights", weights, "text", what);
    if (e->num_bytes >= 0)
        printf("%-20s %lld\n%-20s %lld\n", "bytes predicted", (long long)e->num_bytes, "characters",
               (long long)e->num_characters);
    printf("%-20s %.0f\n", "tokens predicted", e->num_targets);
    printf("%-20s %lld\n", "windows", (long long)e->num_windows);
    printf("%-20s %.6f\n", "loss", mean);
    printf("%-20s %.4f\n", "perplexity", exp(mean));
    if (e->num_bytes > 0)
        printf("%-20s %.6f\n%-20s %.6f\n", "bits per byte", e->loss / M_LN2 / (double)e->num_bytes,
               "bits per character", e->loss / M_LN2 / (double)e->num_characters);
    if (e->num_right >= 0)
        printf("%-20s %.4f (%.0f of %.0f)\n", "accuracy", e->num_right / e->num_targets,
               e->num_right, e->num_targets);
    tri_text_print(stdout, "%-20s %s\n", "time", tri_text_duration(e->seconds, text));
}

static tr_status print_json(const tri_evaluation *e, const char *what, const char *weights,
                            tr_error *err)
{
    double mean = e->loss / e->num_targets;
    json_t *o = tri_doc_begin();
    tri_doc_text(o, "weights", weights);
    tri_doc_text(o, "text", what);
    tri_doc_count(o, "tokens", (int64_t)e->num_targets);
    tri_doc_count(o, "windows", (int64_t)e->num_windows);
    tri_doc_number(o, "loss", mean);
    tri_doc_number(o, "perplexity", exp(mean));
    if (e->num_bytes > 0) {
        tri_doc_count(o, "bytes", (int64_t)e->num_bytes);
        tri_doc_count(o, "characters", (int64_t)e->num_characters);
        tri_doc_number(o, "bits_per_byte", e->loss / M_LN2 / (double)e->num_bytes);
        tri_doc_number(o, "bits_per_character", e->loss / M_LN2 / (double)e->num_characters);
    }
    if (e->num_right >= 0)
        tri_doc_number(o, "accuracy", e->num_right / e->num_targets);
    tri_doc_number(o, "seconds", e->seconds);
    return tri_doc_print(o, stdout, err);
}

/* A run says in its settings how long its windows are, and how many are computed at a time. Without
 * other word, those of other models are as long as the model can take, up to a usual length, and
 * one at a time. */
static tr_status choose_length(tr_settings *settings, bool is_hf, tr_error *err)
{
    int64_t positions = tr_settings_int(settings, "model.positions");
    if (is_hf)
        TRI_TRY(tr_settings_fill(settings, "train.batch=1", err));
    if (!is_hf || tr_settings_given(settings, "data.seq_len") || positions == 0)
        return TR_OK;
    char assignment[64];
    snprintf(assignment, sizeof assignment, "data.seq_len=%lld",
             (long long)(positions < USUAL_SEQ_LEN ? positions : USUAL_SEQ_LEN));
    return tr_settings_set(settings, assignment, err);
}

static tr_status evaluate_file(const tri_cli *cli, const tri_vocabulary *vocabulary,
                               const char *place, const char *path, int64_t stride,
                               tri_evaluation *evaluation, tr_error *err)
{
    const char *kind = tr_settings_string(cli->settings, "model.kind");
    if (!tri_settings_model(cli->settings)->generates)
        return tri_fail(err, TR_ERROR_INPUT,
                        "--data is text to predict token after token, which model.kind %s does "
                        "not do; its held-out data is evaluated without --data",
                        kind);
    if (!vocabulary->tokenizer)
        return tri_fail(err, TR_ERROR_INPUT,
                        "%s has no tokenizer, so --data cannot be turned into tokens; put its "
                        "tokenizer.json beside the weights",
                        place);
    tri_bytes bytes = {0};
    tr_status status = tri_advise(err, tri_cli_read_all(path, &bytes, err),
                                  "--data takes a file of plain text, or - for standard input");
    if (status != TR_OK) {
        tri_bytes_fini(&bytes);
        return status;
    }
    status = tri_api_evaluate_text(cli->settings, vocabulary, bytes.data ? bytes.data : "",
                                   bytes.num, stride, evaluation, err);
    tri_bytes_fini(&bytes);
    return status == TR_OK || err->status != TR_ERROR_INPUT
               ? status
               : tri_fail_prefix(err, status, "--data %s", path);
}

static tr_status evaluate(const tri_cli *cli, tr_error *err)
{
    int64_t stride = 0;
    const char *path = tri_cli_flag(cli, "data");
    TRI_TRY(tri_cli_flag_int(cli, "stride", 1, 1000000, &stride, err));
    if (stride > 0 && !path)
        return tri_fail(err, TR_ERROR_INPUT, "--stride goes with --data FILE");
    TRI_TRY(tri_cli_point_to_weights(cli, err));
    const char *place = tri_api_weights_place(cli->settings);
    bool is_hf = tri_hf_is_dir(place);
    if (is_hf && !path && !tr_settings_given(cli->settings, "data.source"))
        return tri_fail(err, TR_ERROR_INPUT,
                        "%s has no data of its own; give a text with --data FILE", place);
    TRI_TRY(tri_settings_complete(cli->settings, err));
    TRI_TRY(choose_length(cli->settings, is_hf, err));
    tri_vocabulary vocabulary;
    TRI_TRY(tri_vocabulary_open(place, tri_api_tokenizer(cli->settings),
                                tr_settings_int(cli->settings, "model.vocab"), !is_hf, &vocabulary,
                                err));
    tri_evaluation evaluation;
    tr_status status =
        path ? evaluate_file(cli, &vocabulary, place, path, stride, &evaluation, err)
             : tri_api_evaluate_held_out(cli->settings, &vocabulary, &evaluation, err);
    tri_vocabulary_close(&vocabulary);
    if (status != TR_OK)
        return status;
    char held_out[300], weights[500];
    TRI_TRY(tri_cli_weights_words(cli, weights, sizeof weights, err));
    snprintf(held_out, sizeof held_out, "%.200s, held-out part",
             tr_settings_string(cli->settings, "data.source"));
    if (tri_cli_flag(cli, "json"))
        return print_json(&evaluation, path ? path : held_out, weights, err);
    print_table(&evaluation, path ? path : held_out, weights);
    return TR_OK;
}

int tri_verb_eval(const tri_cli *cli)
{
    tr_error err = {0};
    return evaluate(cli, &err) == TR_OK ? TRI_EXIT_OK : tri_cli_fail(&err);
}
