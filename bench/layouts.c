/* Layouts planned and timed, one after the other in one process, as a search does it:
 *
 *     build/bench/layouts [LAYOUTS [MODEL [SEED [whole]]]]
 *
 * Of each of so many random layouts of a model (200 of llama3-70b, on 64 to 512 H100s) the settings
 * are completed, the programs of all stages compiled with their memory planned, and a step timed.
 * It prints layouts a second of processor time, and what each of the three takes. The sum of all
 * planned bytes and seconds tells whether two builds plan alike. */
#include <inttypes.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "api/api.h"
#include "mesh/devices.h"
#include "sim/machine_costs.h"
#include "sim/timing.h"
#include "train/plan/stage_programs.h"
#include "trireme/trireme.h"

typedef enum part { PART_SETTINGS, PART_COMPILE, PART_TIMING, NUM_PARTS } part;
static const char *const part_names[NUM_PARTS] = {"settings", "compile", "timing"};

typedef struct tally {
    uint64_t key;
    double seconds[NUM_PARTS], most;
    uint32_t layouts, refused, stages, compiled, extended;
    uint64_t bytes;
    double step_seconds;
} tally;

static double cpu_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static uint32_t draw(tally *t, uint32_t below)
{
    t->key = t->key * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(t->key >> 33) % below;
}

static int power(tally *t, uint32_t below)
{
    return 1 << draw(t, below);
}

static tr_status describe(tally *t, const char *model, tr_settings *settings,
                          tri_session_config *config, tr_error *err)
{
    static const char *const recomputes[] = {"none", "selective", "full"};
    int ranks = 64 * power(t, 4), tp = power(t, 4), pp = power(t, 5);
    int dp = ranks / (tp * pp) > 0 ? ranks / (tp * pp) : 1;
    int microbatches = pp * power(t, 4);
    microbatches = microbatches > 64 ? 64 : microbatches;
    bool interleaved = pp > 1 && pp <= 8 && draw(t, 3) == 0;
    char text[512];
    snprintf(text, sizeof text,
             "model.preset=%s precision.kind=bf16 layout.tp=%d layout.pp=%d layout.dp=%d "
             "layout.zero=%u layout.recompute=%s layout.microbatches=%d layout.schedule=%s "
             "layout.chunks=%d train.batch=%d data.seq_len=4096 run.lanes=group",
             model, tp, pp, dp, draw(t, 4), recomputes[draw(t, 3)], microbatches,
             interleaved ? "interleaved" : "1f1b", interleaved ? 2 : 0,
             dp * microbatches * power(t, 2));
    char *rest = text;
    for (char *one; (one = strtok_r(rest, " ", &rest)) != NULL;)
        TRI_TRY(tr_settings_set(settings, one, err));
    return tri_api_describe(settings, config, err);
}

static tr_status time_step(const tri_stage_programs *stages, const tri_machine_model *model,
                           tally *t, tr_error *err)
{
    const tri_timing_case c = {.programs = stages->programs,
                               .num_classes = stages->num_stages,
                               .stride = stages->stride,
                               .one_lane = !stages->by_group,
                               .in_place = true,
                               .costs = tri_machine_costs(model)};
    tri_timing timing;
    TRI_TRY(tri_timing_run(&c, &timing, err));
    t->step_seconds += timing.seconds;
    tri_timing_fini(&timing);
    return TR_OK;
}

static tr_status run_layout(tally *t, const char *model, bool whole, tr_error *err)
{
    tr_settings *settings;
    tri_session_config config;
    tri_stage_programs stages;
    tri_cluster cluster;
    double at[NUM_PARTS + 1] = {cpu_seconds()};
    TRI_TRY(tr_settings_create(&settings, err));
    tr_status status = describe(t, model, settings, &config, err);
    at[1] = cpu_seconds();
    if (status == TR_OK)
        status = whole ? tri_stage_programs_compile(&config, true, &stages, err)
                       : tri_stage_programs_sketch(&config, &stages, err);
    at[2] = cpu_seconds();
    if (status == TR_OK) {
        status = tri_cluster_parse("dgx-h100:64", 512, &cluster, err);
        tri_machine_model machine =
            tri_machine_model_of(tri_device_spec_find("h100"), &cluster, TRI_RATE_16);
        if (status == TR_OK)
            status = time_step(&stages, &machine, t, err);
        for (uint32_t s = 0; s < stages.num_stages; s++)
            t->bytes += stages.planned_bytes[s];
        t->stages += stages.num_stages;
        t->compiled += stages.num_compiled;
        t->extended += stages.num_extended;
        tri_stage_programs_fini(&stages);
        at[3] = cpu_seconds();
        for (int p = 0; p < NUM_PARTS; p++)
            t->seconds[p] += at[p + 1] - at[p];
        t->most = at[3] - at[0] > t->most ? at[3] - at[0] : t->most;
        t->layouts++;
    } else if (status == TR_ERROR_INPUT) {
        t->refused++;
        status = TR_OK;
    }
    tr_settings_destroy(settings);
    return status;
}

int main(int argc, char **argv)
{
    uint32_t num = argc > 1 ? (uint32_t)atoi(argv[1]) : 200;
    const char *model = argc > 2 ? argv[2] : "llama3-70b";
    tally t = {.key = argc > 3 ? (uint64_t)atoll(argv[3]) : 1};
    tr_error err = {0};
    mallopt(M_MMAP_THRESHOLD, 32 << 20); /* as `plan --search` keeps what it frees */
    mallopt(M_TRIM_THRESHOLD, 256 << 20);
    mallopt(M_TOP_PAD, 16 << 20);
    while (t.layouts < num && t.refused < 10 * num)
        if (run_layout(&t, model, argc > 4, &err) != TR_OK) {
            fprintf(stderr, "layouts: %s\n", err.message);
            return 1;
        }
    double all = 0;
    for (int p = 0; p < NUM_PARTS; p++)
        all += t.seconds[p];
    printf("%u layouts of %s, and %u that are refused: %.1f a second; %u stages, of which %u were "
           "compiled, %u extended\n",
           t.layouts, model, t.refused, t.layouts / all, t.stages, t.compiled, t.extended);
    for (int p = 0; p < NUM_PARTS; p++)
        printf("  %-9s %8.3f ms a layout\n", part_names[p], 1e3 * t.seconds[p] / t.layouts);
    printf("  %-9s %8.3f ms\nplanned bytes %" PRIu64 ", seconds of steps %.9f\n", "longest",
           1e3 * t.most, t.bytes, t.step_seconds);
    return err.status == TR_OK || t.layouts == num ? 0 : 1;
}
