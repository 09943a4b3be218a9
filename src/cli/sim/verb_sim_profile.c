/* trireme sim FILE.yaml --profile FILE: a step by what was measured. */
#include <stdio.h>
#include <string.h>

#include "api/api.h"
#include "cli/bench/bench_device.h"
#include "cli/doc/docs.h"
#include "cli/sim/verb_sim_model.h"

/* ---- the profile ---- */

static int num_ranks(const tri_model_sim *m)
{
    return (int)(m->stages.num_stages * m->stages.stride);
}

static tr_status check_isa(const tri_model_sim *m, tr_error *err)
{
    const char *isa = tr_settings_string(m->cli->settings, "run.isa");
    if (strcmp(isa, "auto") == 0 || strcmp(isa, m->profile.isa) == 0 ||
        strcmp(m->profile.kind, "cpu") != 0)
        return TR_OK;
    return tri_fail(err, TR_ERROR_INPUT,
                    "run.isa is %s, the profile was measured with %s; leave run.isa out, or "
                    "measure with it: trireme bench device --set run.isa=%s",
                    isa, m->profile.isa, isa);
}

/* What sim says of a device: the best that was measured there. Ranks on a host share its cores. */
static void make_spec(tri_model_sim *m, int threads)
{
    const tri_measured *p = &m->profile;
    const char *precision = tr_settings_string(m->cli->settings, "precision.kind");
    double share = strcmp(p->kind, "cpu") == 0 && p->cores > 0 ? (double)threads / p->cores : 1;
    m->machine.own_device = (tri_device_spec){.name = "measured",
                                              .title = p->device,
                                              .memory_bytes = p->memory_bytes,
                                              .memory_bytes_per_s = p->memory_bytes_per_s};
    for (int r = 0; r < TRI_NUM_RATES; r++)
        m->machine.own_device.dense[r] = p->dense[r] * share;
    m->machine.roofline.device = &m->machine.own_device;
    m->machine.roofline.rate = strcmp(precision, "fp32") == 0 ? TRI_RATE_F32 : TRI_RATE_16;
    if (m->machine.own_device.dense[m->machine.roofline.rate] <=
        0) /* the host computes in f32, whatever rests in memory */
        m->machine.roofline.rate =
            m->machine.own_device.dense[TRI_RATE_F32] > 0 ? TRI_RATE_F32 : TRI_RATE_16;
    m->machine.roofline.efficiency = 1;
    m->machine.rate = m->machine.roofline.rate;
    m->machine.model.profile.kind = TRI_PROFILE_MEASURED;
    snprintf(m->machine.model.cluster.name, sizeof m->machine.model.cluster.name, "as measured");
}

static tr_status find_link(tri_model_sim *m, int ranks, tr_error *err)
{
    const char *name = tri_cli_flag(m->cli, "link");
    m->machine.own_link = (tri_link_spec){.name = "memory", .title = "memory", .bytes_per_s = 1};
    m->machine.roofline.link = &m->machine.own_link;
    if (name && m->profile.num_messages)
        return tri_fail(err, TR_ERROR_INPUT,
                        "the profile has what messages take; leave --link %.40s out", name);
    if (!name && ranks > 1 && !m->profile.num_messages)
        return tri_fail(err, TR_ERROR_INPUT,
                        "the profile was measured on one device, without messages; name what "
                        "connects the ranks: --link nvlink4, say (`trireme place --devices` lists "
                        "links)");
    if (!name)
        return TR_OK;
    m->machine.roofline.link = tri_link_spec_find(name);
    return m->machine.roofline.link
               ? TR_OK
               : tri_fail(err, TR_ERROR_INPUT,
                          "there is no link \"%.40s\"; `trireme place --devices` lists "
                          "them",
                          name);
}

tr_status tri_model_sim_read_profile(tri_model_sim *m, tr_error *err)
{
    const char *path = tri_cli_flag(m->cli, "profile");
    const double brief = 20;
    if (strcmp(path, "here") == 0)
        TRI_TRY(tri_device_bench_run(m->cli, brief, tri_cli_flag(m->cli, "json") != NULL,
                                     &m->profile, err));
    else
        TRI_TRY(tri_measured_read(path, &m->profile, err));
    return check_isa(m, err);
}

static int threads_of(const tri_model_sim *m, int ranks)
{
    int given = (int)tr_settings_int(m->cli->settings, "run.threads");
    int share = m->profile.cores / (ranks > 0 ? ranks : 1);
    return given ? given : share > 1 ? share : 1;
}

/* Programs are those that this kind of device runs. */
tr_status tri_model_sim_describe_measured(tri_model_sim *m, tri_session_config *config,
                                          tr_error *err)
{
    tr_settings *settings = m->cli->settings;
    bool host = strcmp(m->profile.kind, "cpu") == 0;
    if (host) {
        TRI_TRY(tr_settings_set(settings, "run.device=cpu", err));
        TRI_TRY(tri_settings_complete(settings, err));
        TRI_TRY(tri_session_config_from(settings, config, err));
        config->programs = TRI_PROGRAMS_TRAIN;
    } else {
        TRI_TRY(tri_api_describe(settings, config, err));
    }
    int ranks = tri_mesh_ranks(&config->compile.mesh);
    make_spec(m, host ? threads_of(m, ranks) : 1);
    return find_link(m, ranks, err);
}

tr_status tri_model_sim_price(tri_model_sim *m, tr_error *err)
{
    bool host = strcmp(m->profile.kind, "cpu") == 0;
    int ranks = num_ranks(m);
    TRI_TRY(tri_measured_model_init(&m->measured, &m->profile, m->stages.programs,
                                    m->stages.num_stages, ranks, host ? threads_of(m, ranks) : 1,
                                    err));
    m->measured.wire = tri_roofline_costs(&m->machine.roofline);
    return TR_OK;
}

/* ---- what is said of it ---- */

static double share_of(const tri_model_sim *m, tri_found found)
{
    double all = 0;
    for (int f = 0; f < TRI_NUM_FOUND; f++)
        all += m->measured.found_s[f];
    return all > 0 ? m->measured.found_s[found] / all : 0;
}

void tri_model_sim_profile_title(tri_model_sim *m, const char *order)
{
    const tri_measured *p = &m->profile;
    int ranks = num_ranks(m), threads = threads_of(m, ranks);
    if (strcmp(p->kind, "cpu") == 0)
        snprintf(m->title, sizeof m->title,
                 "%d rank%s with %d thread%s each on %.60s (%s), measured%s", ranks,
                 ranks == 1 ? "" : "s", threads, threads == 1 ? "" : "s", p->model, p->isa, order);
    else
        snprintf(m->title, sizeof m->title, "%d x %.80s, measured%s", ranks, p->device, order);
}

/* A profile says nothing of another processor. */
static void print_foreign(const tri_model_sim *m)
{
    char here[TRI_MEASURED_NAME];
    tri_device_bench_model(here, sizeof here);
    if (strcmp(m->profile.kind, "cpu") == 0 && here[0] && strcmp(here, m->profile.model) != 0)
        printf("this machine is another, %s: --profile here measures it\n", here);
}

void tri_model_sim_profile_text(const tri_model_sim *m)
{
    const tri_measured_model *measured = &m->measured;
    double mean, worst;
    size_t num = tri_measured_residual(measured->busy, &mean, &worst);
    printf("measured on %s, %s, %s: %zu steps were off by %.1f %% on average, %.1f %% at most\n",
           m->profile.device, m->profile.model, m->profile.date, num, 100 * mean, 100 * worst);
    print_foreign(m);
    printf("of the instructions' time %.0f %% was measured at these sizes, %.0f %% lies between "
           "sizes\n",
           100 * share_of(m, TRI_FOUND_SAMPLE), 100 * share_of(m, TRI_FOUND_BETWEEN));
    if (measured->num_missing == 0)
        return;
    printf("%.1f %% is guessed, of %zu kind%s that %s not measured:",
           100 * (share_of(m, TRI_FOUND_OTHER) + share_of(m, TRI_FOUND_RATES)),
           measured->num_missing, measured->num_missing == 1 ? "" : "s",
           measured->num_missing == 1 ? "was" : "were");
    for (size_t i = 0; i < measured->num_missing && i < TRI_MEASURED_MISSING; i++)
        printf("%s %s [%s] by %s", i ? "," : "", tri_op_get(measured->missing[i].op)->name,
               measured->missing[i].kind,
               measured->missing[i].found == TRI_FOUND_OTHER ? "another kind" : "rates");
    printf("\n");
}

void tri_model_sim_profile_json(const tri_model_sim *m, json_t *doc)
{
    const tri_measured_model *measured = &m->measured;
    json_t *item = tri_doc_object(doc, "profile");
    double mean, worst;
    size_t num = tri_measured_residual(measured->busy, &mean, &worst);
    tri_doc_text(item, "device", m->profile.device);
    tri_doc_text(item, "model", m->profile.model);
    tri_doc_text(item, "date", m->profile.date);
    tri_doc_count(item, "steps", (int64_t)num);
    tri_doc_number(item, "mean_error_share", mean);
    tri_doc_number(item, "worst_error_share", worst);
    tri_doc_number(item, "sampled_share", share_of(m, TRI_FOUND_SAMPLE));
    tri_doc_number(item, "between_share", share_of(m, TRI_FOUND_BETWEEN));
    tri_doc_number(item, "guessed_share",
                   share_of(m, TRI_FOUND_OTHER) + share_of(m, TRI_FOUND_RATES));
    tri_doc_count(item, "missing_kinds", (int64_t)measured->num_missing);
    json_t *list = tri_doc_list(item, "missing");
    for (size_t i = 0; i < measured->num_missing && i < TRI_MEASURED_MISSING; i++) {
        json_t *each = tri_doc_item(list);
        tri_doc_text(each, "operator", tri_op_get(measured->missing[i].op)->name);
        tri_doc_text(each, "kind", measured->missing[i].kind);
        tri_doc_number(each, "ms", 1e3 * measured->missing[i].seconds);
    }
}
