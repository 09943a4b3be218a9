/* Prompts of data.seq_len random tokens in generate.batch rows, then --steps tokens for each:
 * tokens per second of both parts, and how fast decoding reads the parameters, beside the rate at
 * which the device copies memory. No weights are needed, and no text is made. */
#include "cli/bench/bench_generate.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#include "api/api.h"
#include "base/rng.h"
#include "base/text.h"

enum { REPEATS = 3 };

static bool go_on(void *context, size_t request, int32_t token)
{
    (void)context;
    (void)request;
    (void)token;
    return true;
}

/* Bytes of parameters that one run of decode reads: all but what is looked up in tables. */
static double bytes_read(const tri_session *session)
{
    const tri_program *program = &session->programs[TRI_PROGRAM_DECODE];
    double bytes = 0;
    for (size_t i = 0; i < program->num_instrs; i++)
        if (program->instrs[i].op == TRI_OP_MATMUL)
            bytes += (double)tri_value_bytes(&program->values[program->instrs[i].in[1].value]);
    return bytes;
}

static void report(const tri_cli *cli, tri_session *session, const tri_generate_stats *best)
{
    char bytes[16], count[16];
    double read = bytes_read(session), runs = (double)best->decode_runs;
    double rate = read * runs / best->decode_s * 1e-9;
    const tri_device_def *def = session->device.def;
    double copy = def->peak_bytes ? def->peak_bytes(&session->device) * 1e-9 : 0;
    const tri_generate_shape *shape = &session->config.generate;
    if (tri_cli_flag(cli, "json")) {
        json_t *line = json_pack(
            "{s:I, s:f, s:f, s:f, s:f, s:f}", "batch", (json_int_t)shape->rows,
            "prefill_tokens_per_s", (double)best->prompt_tokens / best->prefill_s,
            "decode_tokens_per_s", (double)best->decode_tokens / best->decode_s, "decode_ms",
            best->decode_s / runs * 1e3, "weights_gb_per_s", rate, "copy_gb_per_s", copy);
        json_dumpf(line, stdout, JSON_COMPACT | JSON_PRESERVE_ORDER);
        printf("\n");
        json_decref(line);
        return;
    }
    printf("%s, %s parameters, %s\n", session->config.compile.model.kind,
           tri_text_count((double)tri_param_total(&session->params), count),
           session->device.description);
    printf("memory    %s, of which the cache %s for %lld x %lld positions\n",
           tri_text_bytes((double)tri_session_planned_bytes(session), bytes),
           tri_text_bytes((double)session->store.slabs[TRI_SLAB_CACHE].bytes, (char[16]){0}),
           (long long)shape->rows, (long long)shape->len);
    printf("prompts   %10.1f tokens/s\n", (double)best->prompt_tokens / best->prefill_s);
    printf("decoding  %10.1f tokens/s, %.2f ms for %lld row%s\n",
           (double)best->decode_tokens / best->decode_s, best->decode_s / runs * 1e3,
           (long long)shape->rows, shape->rows == 1 ? "" : "s");
    printf("          %10.1f GB/s of weights (%s for each run)", rate, tri_text_bytes(read, bytes));
    if (copy > 0)
        printf("; a copy moves %.1f GB/s, half of it read", copy);
    printf("\n");
}

static tr_status measure(const tri_cli *cli, tr_session *session, int64_t num_tokens, tr_error *err)
{
    tri_session *s = &session->session;
    int64_t rows = s->config.generate.rows, length = s->config.compile.seq_len;
    int64_t vocab = s->config.compile.model.vocab;
    int32_t *tokens = malloc((size_t)(rows * length) * sizeof *tokens);
    tri_text_request *requests = calloc((size_t)rows, sizeof *requests);
    tr_status status = tokens && requests
                           ? tri_api_start(session, err)
                           : tri_fail(err, TR_ERROR_RUNTIME, "no memory for the prompts");
    for (int64_t i = 0; status == TR_OK && i < rows * length; i++)
        tokens[i] = (int32_t)(tri_random_word(1, (uint64_t)i, 0, tri_stream("bench", "prompt")) %
                              (uint64_t)vocab);
    for (int64_t r = 0; status == TR_OK && r < rows; r++)
        requests[r] = (tri_text_request){tokens + r * length, length, num_tokens + 1};
    tri_sampling greedy = {.top_p = 1, .repetition_penalty = 1};
    tri_generate_stats best = {0}, stats;
    for (int i = 0; i < REPEATS && status == TR_OK; i++) {
        status = tri_generate(s, requests, (size_t)rows, &greedy, go_on, NULL, &stats, err);
        if (i == 0 || stats.decode_s < best.decode_s)
            best = stats;
    }
    if (status == TR_OK)
        report(cli, s, &best);
    free(tokens);
    free(requests);
    return status;
}

int tri_bench_generate(const tri_cli *cli)
{
    tr_error err = {0};
    int64_t num_tokens = 32;
    if (tri_cli_flag_int(cli, "steps", 1, 1000000, &num_tokens, &err) != TR_OK ||
        tri_settings_complete(cli->settings, &err) != TR_OK)
        return tri_cli_fail(&err);
    tri_session_config config;
    if (tri_session_config_from(cli->settings, &config, &err) != TR_OK)
        return tri_cli_fail(&err);
    int64_t length = config.compile.seq_len;
    tri_generate_shape shape = tri_generate_plan(
        &config.compile.model, tr_settings_int(cli->settings, "generate.batch"),
        tr_settings_int(cli->settings, "generate.prefill"), length, length + num_tokens + 1);
    tr_session *session;
    if (tri_api_compile_programs(cli->settings, 0, TRI_PROGRAMS_GENERATE, &shape, &session, &err) !=
        TR_OK)
        return tri_cli_fail(&err);
    tr_status status = measure(cli, session, num_tokens, &err);
    tr_session_destroy(session);
    return status == TR_OK ? TRI_EXIT_OK : tri_cli_fail(&err);
}
