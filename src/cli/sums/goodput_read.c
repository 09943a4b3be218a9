/* The flags of plan --goodput. What is not given is assumed, and says so. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "api/api.h"
#include "cli/quantity.h"
#include "cli/sums/goodput_sheet.h"
#include "cli/sums/sums.h"
#include "sim/run_sums.h"
#include "sim/whole_run/stop_rates.h"

/* With these and the rate of stops of Llama 3 405B, its run comes to the "more than 90 %" that was
 * published. */
static const double assumed_save_s = 10, assumed_restart_s = 600, assumed_step_s = 5;

/* Weights and two moments, each in fp32. */
static const double save_bytes_per_param = 12;

static const char *flag_of(const tri_goodput_sheet *s, const char *name)
{
    return tri_cli_flag(s->cli, name);
}

__attribute__((format(printf, 2, 3))) static void say(tri_goodput_origin *origin,
                                                      const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(origin->text, sizeof origin->text, format, args);
    va_end(args);
}

/* Cuts "A:B" at the mark; after is NULL where there is none. */
static tr_status cut(const char *flag, const char *text, char mark, char before[64],
                     const char **after, tr_error *err)
{
    const char *at = strchr(text, mark);
    size_t length = at ? (size_t)(at - text) : strlen(text);
    if (length >= 64)
        return tri_fail(err, TR_ERROR_INPUT, "--%s is \"%.40s...\", which is too long", flag, text);
    memcpy(before, text, length);
    before[length] = 0;
    *after = at ? at + 1 : NULL;
    return TR_OK;
}

/* ---- the model and the device ---- */

static tr_status read_model(tri_goodput_sheet *s, tr_error *err)
{
    const char *params = flag_of(s, "params");
    bool model = s->cli->file || s->cli->num_assignments > 0;
    tr_session *session;
    if (params && !*params)
        return tri_fail(err, TR_ERROR_INPUT,
                        "--params lists the parameters of a model, which --goodput does not; give "
                        "a number, --params 405B, or leave it out");
    if (params && model)
        return tri_fail(err, TR_ERROR_INPUT,
                        "--params %.20s and a model are given, and a model has its own number; "
                        "leave --params, or the settings, out",
                        params);
    if (params) {
        TRI_TRY(tri_quantity_count("params", params, &s->params, err));
        s->active = s->params;
    }
    if (!model)
        return TR_OK;
    TRI_TRY(tri_api_compile(s->cli->settings, 0, &session, err));
    const tri_compile_config *compile = &session->session.config.compile;
    s->params = s->active = (double)tri_param_total(&session->session.params);
    if (compile->model.moe.num_experts > 0)
        s->active = (double)tri_moe_active(&compile->model.moe, &session->session.params);
    s->batch_tokens = (double)compile->batch * (double)compile->seq_len;
    if (tri_mesh_ranks(&compile->mesh) > 1)
        s->c.num_devices = (double)tri_mesh_ranks(&compile->mesh);
    tr_session_destroy(session);
    return TR_OK;
}

static tr_status read_rate(tri_goodput_sheet *s, tr_error *err)
{
    const char *rate = flag_of(s, "rate"), *name = flag_of(s, "device"), *mfu = flag_of(s, "mfu");
    double share = 0.5;
    if (name)
        TRI_TRY(tri_quantity_device(name, &s->own_device, &s->device, err));
    if (mfu)
        TRI_TRY(tri_quantity_share("mfu", mfu, &share, err));
    if (mfu && (rate || !s->device))
        return tri_fail(err, TR_ERROR_INPUT, "%s",
                        rate ? "--rate is what a device reaches; leave --mfu out, or --rate"
                             : "--mfu is a share of the rate of a device; add --device h100, say");
    if (rate)
        TRI_TRY(tri_quantity_count("rate", rate, &s->rate, err));
    else if (s->device)
        s->rate = share * s->device->dense[TRI_RATE_16];
    if (s->device)
        s->watts = tri_device_watts(s->device->name, NULL);
    return TR_OK;
}

static tr_status read_prices(tri_goodput_sheet *s, tr_error *err)
{
    const struct {
        const char *name;
        double *value, least, most;
    } numbers[] = {
        {"gpus", &s->c.num_devices, 1, 1e9},
        {"watts", &s->watts, 1e-3, 1e9},
        {"pue", &s->pue, 1, 100},
        {"price", &s->price, 1e-9, 1e9},
    };
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (flag_of(s, numbers[i].name))
            TRI_TRY(tri_quantity_number(numbers[i].name, flag_of(s, numbers[i].name),
                                        numbers[i].least, numbers[i].most, numbers[i].value, err));
    if (s->c.num_devices <= 0)
        return tri_fail(err, TR_ERROR_INPUT,
                        "on how many devices the run is, is not known; add --gpus 16384, say");
    if (floor(s->c.num_devices) < s->c.num_devices)
        return tri_fail(err, TR_ERROR_INPUT, "--gpus is %.20s; give a whole number of devices",
                        flag_of(s, "gpus"));
    if (flag_of(s, "pue") && s->watts <= 0)
        return tri_fail(err, TR_ERROR_INPUT,
                        "--pue multiplies the energy of the devices, whose power is not known; "
                        "add --watts, or a --device with a datasheet that has it");
    return TR_OK;
}

/* ---- how much work ---- */

static tr_status read_one_way(const tri_goodput_sheet *s, tr_error *err)
{
    int ways = (flag_of(s, "days") != NULL) + (flag_of(s, "steps") != NULL) +
               (flag_of(s, "tokens") != NULL);
    if (ways == 0)
        return tri_fail(
            err, TR_ERROR_INPUT,
            "how long the run would be without failures is not known; add --days 30, or "
            "--steps 1e6 --step 5.2s, or --tokens 15.6T");
    if (ways > 1)
        return tri_fail(err, TR_ERROR_INPUT,
                        "--days, --steps and --tokens each say how long the run would be without "
                        "failures; give one of them");
    if (flag_of(s, "steps") && !flag_of(s, "step"))
        return tri_fail(err, TR_ERROR_INPUT,
                        "how long a step takes is not known; add --step 5.2s, say");
    return TR_OK;
}

/* From tokens to steps: by the batch and the time of a step, or by arithmetic. */
static tr_status read_tokens(tri_goodput_sheet *s, tr_error *err)
{
    tri_goodput_case *c = &s->c;
    char tokens[16], count[16];
    bool timed = s->batch_tokens > 0 && c->step_s > 0;
    TRI_TRY(tri_quantity_count("tokens", flag_of(s, "tokens"), &s->tokens, err));
    tri_text_count(s->tokens, tokens);
    if (timed && (flag_of(s, "rate") || flag_of(s, "mfu")))
        return tri_fail(err, TR_ERROR_INPUT,
                        "--step says how long a batch takes already; leave --%s out, or --step",
                        flag_of(s, "rate") ? "rate" : "mfu");
    if (timed) {
        c->num_steps = s->tokens / s->batch_tokens;
        say(&s->run, "%s tokens, %s in a batch", tokens, tri_text_count(s->batch_tokens, count));
        return TR_OK;
    }
    if (s->active <= 0 || s->rate <= 0)
        return tri_fail(err, TR_ERROR_INPUT,
                        "how long so many tokens take is not known; add --batch-tokens 16M --step "
                        "5.2s, or --params 405B --device h100 --mfu 0.4, say");
    double seconds = tri_run_flops(s->active, s->tokens) / (s->rate * c->num_devices);
    say(&s->run, "%s tokens, 6 FLOP for each of %s parameters, %.4g TFLOP/s a device", tokens,
        tri_text_count(s->active, count), s->rate * 1e-12);
    if (s->batch_tokens > 0) {
        c->num_steps = s->tokens / s->batch_tokens;
        c->step_s = seconds / c->num_steps;
        say(&s->step, "%s tokens in a batch", tri_text_count(s->batch_tokens, count));
        return TR_OK;
    }
    if (c->step_s <= 0) {
        c->step_s = assumed_step_s;
        say(&s->step, "assumed; --step, or --batch-tokens");
    }
    c->num_steps = seconds / c->step_s;
    return TR_OK;
}

static tr_status read_work(tri_goodput_sheet *s, tr_error *err)
{
    tri_goodput_case *c = &s->c;
    const char *step = flag_of(s, "step"), *batch = flag_of(s, "batch-tokens");
    double days, steps;
    TRI_TRY(read_one_way(s, err));
    if (batch)
        TRI_TRY(tri_quantity_count("batch-tokens", batch, &s->batch_tokens, err));
    if (step) {
        TRI_TRY(tri_quantity_duration("step", step, &c->step_s, err));
        say(&s->step, "--step");
    }
    if (flag_of(s, "tokens"))
        return read_tokens(s, err);
    if (flag_of(s, "steps")) {
        TRI_TRY(tri_quantity_count("steps", flag_of(s, "steps"), &steps, err));
        c->num_steps = steps;
        say(&s->run, "--steps");
        return TR_OK;
    }
    TRI_TRY(tri_quantity_number("days", flag_of(s, "days"), 1e-6, 1e6, &days, err));
    if (!step) {
        c->step_s = assumed_step_s;
        say(&s->step, "assumed; --step");
    }
    c->num_steps = days * 86400 / c->step_s;
    say(&s->run, "--days, without failures");
    return TR_OK;
}

/* ---- what happens on the way ---- */

/* A name of the table, a time, or "12/30d/512": stops, time, devices. */
static tr_status read_stops(tri_goodput_sheet *s, tr_error *err)
{
    const char *text = flag_of(s, "mtbf"), *after, *last;
    char part[64];
    const tri_stop_rate *rate = text ? tri_stop_rate_find(text) : tri_stop_rate_at(0);
    double stops, seconds, devices;
    if (rate) {
        s->c.device_mtbf_s = tri_stop_rate_mtbf(rate);
        say(&s->stops, "%s", rate->source);
        return TR_OK;
    }
    TRI_TRY(cut("mtbf", text, '/', part, &after, err));
    if (!after) {
        if (tri_quantity_duration("mtbf", text, &s->c.device_mtbf_s, NULL) != TR_OK)
            return tri_fail(err, TR_ERROR_INPUT,
                            "--mtbf is \"%.40s\"; expected the time above 0 from a failure of one "
                            "device to the next, such as 50000h or 6y, or failures in a time "
                            "on devices, 12/30d/512, or llama3, rsc1, rsc2 or bloom",
                            text);
        say(&s->stops, "--mtbf");
        return TR_OK;
    }
    TRI_TRY(tri_quantity_count("mtbf", part, &stops, err));
    TRI_TRY(cut("mtbf", after, '/', part, &last, err));
    TRI_TRY(tri_quantity_duration("mtbf", part, &seconds, err));
    if (!last)
        return tri_fail(err, TR_ERROR_INPUT,
                        "--mtbf is \"%.40s\"; add on how many devices: 12/30d/512", text);
    TRI_TRY(tri_quantity_count("mtbf", last, &devices, err));
    s->c.device_mtbf_s = seconds * devices / stops;
    say(&s->stops, "--mtbf: %.4g failures in %.4g days on %.9g devices", stops, seconds / 86400,
        devices);
    return TR_OK;
}

/* A time, or bytes@rate; the bytes may be left out where the parameters are known. */
static tr_status read_save(tri_goodput_sheet *s, tr_error *err)
{
    const char *text = flag_of(s, "save"), *rate_text;
    char part[64], number[24], second[24];
    double bytes = save_bytes_per_param * s->params, rate;
    s->c.save_s = assumed_save_s;
    s->c.blocking = 1;
    say(&s->save, "assumed; --save 60s, or --save 4.9TB@200GB/s");
    if (flag_of(s, "blocking"))
        TRI_TRY(tri_quantity_part("blocking", flag_of(s, "blocking"), &s->c.blocking, err));
    if (!text)
        return TR_OK;
    TRI_TRY(cut("save", text, '@', part, &rate_text, err));
    if (!rate_text) {
        say(&s->save, "--save");
        return tri_quantity_duration("save", text, &s->c.save_s, err);
    }
    if (*part)
        TRI_TRY(tri_quantity_bytes("save", part, &bytes, err));
    TRI_TRY(tri_quantity_rate("save", rate_text, &rate, err));
    if (bytes <= 0)
        return tri_fail(err, TR_ERROR_INPUT,
                        "how many bytes a save has is not known; give them, --save 4.9TB@200GB/s, "
                        "or --params 405B, for 12 bytes each");
    s->c.save_s = bytes / rate;
    say(&s->save, "%s%s at %s/s", tri_sums_bytes(bytes, 4, number),
        *part ? "" : ", 12 bytes a parameter (fp32 weights, two moments),",
        tri_sums_bytes(rate, 4, second));
    return TR_OK;
}

static tr_status read_jitter(tri_goodput_sheet *s, tr_error *err)
{
    const char *text = flag_of(s, "jitter"), *slow = flag_of(s, "slow"), *after;
    tri_jitter *j = &s->c.jitter;
    char part[64];
    say(&s->jitter, "none assumed; --jitter 1%%, unless the time of a step was measured on as "
                    "many devices");
    if (text) {
        TRI_TRY(cut("jitter", text, ':', part, &after, err));
        TRI_TRY(tri_quantity_part("jitter", part, &j->deviation, err));
        while (after && strcmp(after, tri_jitter_name(j->law)) != 0)
            if (++j->law == TRI_NUM_JITTER_LAWS)
                return tri_fail(err, TR_ERROR_INPUT,
                                "--jitter has \"%.40s\" after its share; it may be normal, "
                                "lognormal or exponential",
                                after);
        say(&s->jitter, "%s, %.4g %% of a step", tri_jitter_name(j->law), 100 * j->deviation);
    }
    if (!slow)
        return TR_OK;
    TRI_TRY(cut("slow", slow, ':', part, &after, err));
    if (!after)
        return tri_fail(err, TR_ERROR_INPUT,
                        "--slow is \"%.40s\"; expected the share of devices that are slow and how "
                        "much longer they take, such as 0.1%%:20%%",
                        slow);
    TRI_TRY(tri_quantity_part("slow", part, &j->slow_share, err));
    TRI_TRY(tri_quantity_part("slow", after, &j->slow_by, err));
    size_t length = text ? strlen(s->jitter.text) : 0;
    snprintf(s->jitter.text + length, sizeof s->jitter.text - length,
             "%s%.4g %% of the devices take %.4g %% longer", text ? "; " : "", 100 * j->slow_share,
             100 * j->slow_by);
    return TR_OK;
}

/* "16:2d": so many nodes, and the time of a repair; "16x4:2d" for nodes of 4 devices. */
static tr_status read_spares(tri_goodput_sheet *s, tr_error *err)
{
    const char *text = flag_of(s, "spares"), *repair, *size;
    char part[64], number[64];
    s->spare_devices = 8;
    if (!text)
        return TR_OK;
    TRI_TRY(cut("spares", text, ':', part, &repair, err));
    if (!repair)
        return tri_fail(err, TR_ERROR_INPUT,
                        "--spares is \"%.40s\"; expected spare nodes and the time of a repair, "
                        "such as 16:2d, or 16x4:2d for nodes of 4 devices",
                        text);
    TRI_TRY(cut("spares", part, 'x', number, &size, err));
    TRI_TRY(tri_quantity_number("spares", number, 0, 1e6, &s->c.num_spares, err));
    if (size)
        TRI_TRY(tri_quantity_number("spares", size, 1, 1e6, &s->spare_devices, err));
    if (floor(s->c.num_spares) < s->c.num_spares)
        return tri_fail(err, TR_ERROR_INPUT, "--spares is \"%.40s\"; give whole nodes", text);
    return tri_quantity_duration("spares", repair, &s->c.repair_s, err);
}

tr_status tri_goodput_read(tri_goodput_sheet *s, tr_error *err)
{
    const char *restart = flag_of(s, "restart"), *interval = flag_of(s, "interval");
    s->pue = 1;
    TRI_TRY(read_model(s, err));
    TRI_TRY(read_rate(s, err));
    TRI_TRY(read_prices(s, err));
    TRI_TRY(read_work(s, err));
    TRI_TRY(read_stops(s, err));
    TRI_TRY(read_save(s, err));
    s->c.restart_s = assumed_restart_s;
    say(&s->restart, restart ? "--restart" : "assumed; --restart");
    if (restart)
        TRI_TRY(tri_quantity_duration("restart", restart, &s->c.restart_s, err));
    if (interval)
        TRI_TRY(tri_quantity_duration("interval", interval, &s->c.interval_s, err));
    TRI_TRY(read_jitter(s, err));
    TRI_TRY(read_spares(s, err));
    return tri_cli_flag_int(s->cli, "simulate", 1, 100000, &s->trials.num, err);
}
