/* --over KEY=VALUES: lists, ranges, grids and draws. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/fs.h"
#include "base/rng.h"
#include "cli/sweep/sweep.h"
#include "config/settings_internal.h"
#include "config/settings_table.h"

static tr_status no_memory(tr_error *err)
{
    return tri_fail(err, TR_ERROR_RUNTIME, "no memory for a sweep");
}

/* ---- values ---- */

static tr_status add_value(tri_sweep_key *key, const char *text, tr_error *err)
{
    for (int i = 0; i < key->num_values; i++)
        if (strcmp(key->values[i], text) == 0)
            return tri_fail(err, TR_ERROR_INPUT, "--over %s: %s is there twice; name it once",
                            key->name, text);
    if (key->num_values == TRI_SWEEP_MOST_RUNS)
        return tri_fail(err, TR_ERROR_INPUT, "--over %s: has more than %d values; give fewer",
                        key->name, TRI_SWEEP_MOST_RUNS);
    char **values = realloc(key->values, ((size_t)key->num_values + 1) * sizeof *values);
    if (!values)
        return no_memory(err);
    key->values = values;
    values[key->num_values] = strdup(text);
    return values[key->num_values++] ? TR_OK : no_memory(err);
}

static void number_text(const tri_sweep_key *key, double value, char text[32])
{
    snprintf(text, 32, key->whole ? "%.0f" : "%.4g", value);
}

/* A share from 0 to 1 of the way from low to high. */
static double between(const tri_sweep_key *key, double share)
{
    if (key->linear || key->whole)
        return key->low + share * (key->high - key->low);
    return exp(log(key->low) + share * (log(key->high) - log(key->low)));
}

static tr_status check_range(const tri_sweep_key *key, tr_error *err)
{
    if (!key->numeric)
        return tri_fail(err, TR_ERROR_INPUT,
                        "--over %s: is not a number, so it has no range; list its values: "
                        "--over %s=a,b",
                        key->name, key->name);
    if (!(key->low < key->high))
        return tri_fail(err, TR_ERROR_INPUT,
                        "--over %s: a range goes from the smaller number to the larger", key->name);
    if (!key->whole && !key->linear && !(key->low > 0))
        return tri_fail(err, TR_ERROR_INPUT,
                        "--over %s: a range is even in its logarithm, so it begins above 0; "
                        "%s=lin:%g..%g is even as it is",
                        key->name, key->name, key->low, key->high);
    if (key->whole && (key->low != floor(key->low) || key->high != floor(key->high)))
        return tri_fail(err, TR_ERROR_INPUT, "--over %s: has whole numbers", key->name);
    return TR_OK;
}

/* "1..3", "1e-4..1e-2", "lin:0..0.3:4"; there is a ".." in it. */
static tr_status read_range(tri_sweep_key *key, const char *text, tr_error *err)
{
    key->range = true;
    key->linear = strncmp(text, "lin:", 4) == 0;
    const char *from = text + (key->linear ? 4 : 0), *dots = strstr(from, "..");
    char low[64], *end, *last = NULL;
    snprintf(low, sizeof low, "%.*s", (int)(dots - from), from);
    key->low = strtod(low, &end);
    bool good = end != low && !*end;
    key->high = strtod(dots + 2, &last);
    good = good && last != dots + 2;
    if (good && *last == ':') {
        const char *number = last + 1;
        key->num_points = strtoll(number, &last, 10);
        good = last != number && key->num_points >= 2 && key->num_points <= TRI_SWEEP_MOST_RUNS;
    }
    if (!good || *last)
        return tri_fail(err, TR_ERROR_INPUT,
                        "--over %s=%.60s: is no range; write LOW..HIGH, LOW..HIGH:N for N values, "
                        "and lin: before it for even steps",
                        key->name, text);
    return check_range(key, err);
}

/* In a grid a range is a list. */
static tr_status list_range(tri_sweep_key *key, tr_error *err)
{
    int64_t num = key->num_points;
    char text[32];
    if (num == 0 && !key->whole)
        return tri_fail(err, TR_ERROR_INPUT,
                        "--over %s: has no end of values between %g and %g; say how many: "
                        "%s=%g..%g:5, or draw some with --random N",
                        key->name, key->low, key->high, key->name, key->low, key->high);
    if (num == 0 && key->high - key->low >= TRI_SWEEP_MOST_RUNS)
        return tri_fail(err, TR_ERROR_INPUT, "--over %s: has more than %d values; give fewer",
                        key->name, TRI_SWEEP_MOST_RUNS);
    num = num ? num : (int64_t)(key->high - key->low) + 1;
    for (int64_t i = 0; i < num; i++) {
        number_text(key, between(key, (double)i / (double)(num - 1)), text);
        TRI_TRY(add_value(key, text, err));
    }
    return TR_OK;
}

static tr_status read_list(tri_sweep_key *key, const char *text, tr_error *err)
{
    char *copy = strdup(text), *rest = copy, *word;
    tr_status status = copy ? TR_OK : no_memory(err);
    while (status == TR_OK && (word = strsep(&rest, ",")))
        status = add_value(key, word, err);
    free(copy);
    return status;
}

/* Whether the settings take what the sweep would give them. */
static tr_status try_value(const tri_sweep *s, const tri_sweep_key *key, const char *value,
                           tr_error *err)
{
    tr_settings *copy;
    tri_text assignment;
    tri_text_init(&assignment);
    tri_text_add(&assignment, "%s=%s", key->name, value);
    TRI_TRY(tri_settings_clone(s->cli->settings, &copy, err));
    tr_status status =
        assignment.failed ? no_memory(err) : tr_settings_set(copy, assignment.chars, err);
    if (status == TR_ERROR_INPUT)
        tri_fail_prefix(err, status, "--over");
    tr_settings_destroy(copy);
    tri_text_fini(&assignment);
    return status;
}

static tr_status read_key(tri_sweep *s, const char *text, tr_error *err)
{
    static const char *const own[] = {"run.dir", "run.resume", "run.stop_at", "train.steps", NULL};
    const char *equals = strchr(text, '=');
    if (!equals || equals == text || !equals[1])
        return tri_fail(err, TR_ERROR_INPUT,
                        "--over %.60s: write a setting and its values: --over optim.lr=1e-3,3e-3",
                        text);
    if (s->num_keys == TRI_SWEEP_MOST_KEYS)
        return tri_fail(err, TR_ERROR_INPUT, "--over is given more than %d times",
                        TRI_SWEEP_MOST_KEYS);
    tri_sweep_key *key = &s->keys[s->num_keys++];
    key->name = strndup(text, (size_t)(equals - text));
    if (!key->name)
        return no_memory(err);
    for (int i = 0; i + 1 < s->num_keys; i++)
        if (strcmp(s->keys[i].name, key->name) == 0)
            return tri_fail(err, TR_ERROR_INPUT, "--over %s is given twice; list all its values",
                            key->name);
    for (int i = 0; own[i]; i++)
        if (strcmp(own[i], key->name) == 0 && (s->halve > 0 || strcmp(own[i], "train.steps") != 0))
            return tri_fail(err, TR_ERROR_INPUT, "--over %s: the sweep itself sets it", key->name);
    const tri_table *table = tri_settings_table(s->cli->settings);
    int found = tri_setting_find(table, key->name);
    if (found < 0)
        return try_value(s, key, equals + 1, err); /* which says what was meant */
    const char *dot = strchr(key->name, '.');
    tri_setting_type type = table->row[found]->type;
    key->shown = dot ? dot + 1 : key->name;
    key->whole = type == TRI_SETTING_INT;
    key->numeric = key->whole || type == TRI_SETTING_FLOAT;
    bool range = strstr(equals + 1, "..") && (key->numeric || !strchr(equals + 1, '/'));
    if (!range)
        TRI_TRY(read_list(key, equals + 1, err));
    else
        TRI_TRY(read_range(key, equals + 1, err));
    if (range && s->random == 0)
        TRI_TRY(list_range(key, err));
    for (int i = 0; i < key->num_values; i++)
        TRI_TRY(try_value(s, key, key->values[i], err));
    return TR_OK;
}

/* ---- runs ---- */

/* A name that a shell and `--set` leave alone. */
static tr_status name_run(const tri_sweep *s, tri_sweep_run *run, int number, tr_error *err)
{
    enum { MOST = 100 };
    int digits = snprintf(NULL, 0, "%d", s->num_runs);
    char name[MOST + 40];
    size_t length = (size_t)snprintf(name, sizeof name, "%0*d", digits > 2 ? digits : 2, number);
    for (int k = 0; k < s->num_keys && length < MOST; k++) {
        size_t begin = length;
        length += (size_t)snprintf(name + length, sizeof name - length, "-%.20s%.40s",
                                   s->keys[k].shown, run->value[k]);
        length = length < sizeof name ? length : sizeof name - 1;
        for (size_t i = begin; i < length; i++)
            if (!strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-+",
                        name[i]))
                name[i] = '_';
    }
    run->name = strdup(name);
    run->dir = run->name ? tri_path_join(s->dir, run->name) : NULL;
    return run->dir ? TR_OK : no_memory(err);
}

static tr_status grid_values(const tri_sweep *s, tri_sweep_run *run, int64_t number, tr_error *err)
{
    for (int k = s->num_keys - 1; k >= 0; k--) { /* the last one changes fastest */
        run->value[k] = strdup(s->keys[k].values[number % s->keys[k].num_values]);
        if (!run->value[k])
            return no_memory(err);
        number /= s->keys[k].num_values;
    }
    return TR_OK;
}

/* A pure function of the seed and the two numbers. */
static void draw_value(const tri_sweep *s, int k, int64_t draw, char text[], size_t size)
{
    const tri_sweep_key *key = &s->keys[k];
    uint32_t word[4];
    tri_philox((uint64_t)s->seed, (uint64_t)draw, (uint32_t)k, tri_stream("sweep", "draw"), word);
    double share = ((double)word[0] * 0x1p32 + word[1]) * 0x1p-64;
    char number[32];
    if (!key->range) {
        snprintf(text, size, "%s", key->values[(int)(share * key->num_values)]);
        return;
    }
    double value =
        key->whole ? key->low + floor(share * (key->high - key->low + 1)) : between(key, share);
    number_text(key, value, number);
    snprintf(text, size, "%s", number);
}

static bool is_new(const tri_sweep *s, int number)
{
    for (int i = 0; i < number; i++) {
        bool same = true;
        for (int k = 0; k < s->num_keys; k++)
            same &= strcmp(s->runs[i].value[k], s->runs[number].value[k]) == 0;
        if (same)
            return false;
    }
    return true;
}

/* Draws until one is new; lists may have no more to give. */
static tr_status random_values(const tri_sweep *s, int number, int64_t *draw, tr_error *err)
{
    enum { MOST_TRIES = 1000 };
    tri_sweep_run *run = &s->runs[number];
    for (int tries = 0; tries < MOST_TRIES; tries++, ++*draw) {
        for (int k = 0; k < s->num_keys; k++) {
            char text[512];
            draw_value(s, k, *draw, text, sizeof text);
            free(run->value[k]);
            run->value[k] = strdup(text);
            if (!run->value[k])
                return no_memory(err);
        }
        if (is_new(s, number))
            return TR_OK;
    }
    return tri_fail(err, TR_ERROR_INPUT,
                    "--random %" PRId64 ": there are hardly more than %d different runs; ask for "
                    "fewer, or leave --random out for all of them",
                    s->random, number);
}

static tr_status make_runs(tri_sweep *s, tr_error *err)
{
    double num = 1;
    for (int k = 0; k < s->num_keys; k++)
        num *= s->keys[k].num_values;
    num = s->random > 0 ? (double)s->random : num;
    if (num > TRI_SWEEP_MOST_RUNS)
        return tri_fail(err, TR_ERROR_INPUT,
                        "this sweep has %.0f runs, and at most %d; give fewer values, or draw some "
                        "with --random N",
                        num, TRI_SWEEP_MOST_RUNS);
    s->runs = calloc((size_t)num + 1, sizeof *s->runs);
    if (!s->runs)
        return no_memory(err);
    s->num_runs = (int)num;
    int64_t draw = 0;
    for (int i = 0; i < s->num_runs; i++) {
        tri_sweep_run *run = &s->runs[i];
        run->value = calloc((size_t)s->num_keys, sizeof *run->value);
        if (!run->value)
            return no_memory(err);
        TRI_TRY(s->random > 0 ? random_values(s, i, &draw, err) : grid_values(s, run, i, err));
        for (int k = 0; k < s->num_keys && s->random > 0; k++)
            TRI_TRY(try_value(s, &s->keys[k], run->value[k], err));
        TRI_TRY(name_run(s, run, i + 1, err));
    }
    return TR_OK;
}

/* --name or run.dir where the command says so; else beside the runs of the recipe. */
static tr_status name_dir(tri_sweep *s, tr_error *err)
{
    const tri_cli *cli = s->cli;
    bool typed = tri_cli_flag(cli, "name") != NULL;
    for (int i = 0; i < cli->num_assignments; i++)
        typed |= strncmp(cli->assignments[i], "run.dir=", 8) == 0;
    if (asprintf(&s->dir, "%s%s", tr_settings_string(cli->settings, "run.dir"),
                 typed ? "" : "-sweep") < 0)
        s->dir = NULL;
    return s->dir ? TR_OK : no_memory(err);
}

tr_status tri_sweep_read(tri_sweep *s, const tri_cli *cli, tr_error *err)
{
    *s = (tri_sweep){.cli = cli, .jobs = 1, .steps = tr_settings_int(cli->settings, "train.steps")};
    TRI_TRY(tri_cli_flag_int(cli, "random", 1, TRI_SWEEP_MOST_RUNS, &s->random, err));
    TRI_TRY(tri_cli_flag_int(cli, "seed", 0, INT64_MAX, &s->seed, err));
    TRI_TRY(tri_cli_flag_int(cli, "halve", 2, 100, &s->halve, err));
    TRI_TRY(tri_cli_flag_int(cli, "jobs", 1, 1000, &s->jobs, err));
    if (tri_cli_flag(cli, "seed") && s->random == 0)
        return tri_fail(err, TR_ERROR_INPUT,
                        "--seed is that of --random, which is not given; leave it out, or sweep "
                        "over run.seed");
    if (s->halve > 0 && tr_settings_int(cli->settings, "train.epochs") > 0)
        return tri_fail(err, TR_ERROR_INPUT,
                        "--halve divides train.steps, and this recipe counts train.epochs; set "
                        "train.epochs=0 and train.steps");
    if (s->jobs > 1 && tr_settings_bool(cli->settings, "layout.auto"))
        return tri_fail(err, TR_ERROR_INPUT,
                        "layout.auto plans for the whole machine, which the runs of --jobs share; "
                        "leave --jobs out, or write a layout into the recipe (trireme plan "
                        "--search)");
    if (tr_settings_int(cli->settings, "run.stop_at") > 0)
        return tri_fail(err, TR_ERROR_INPUT,
                        "run.stop_at is set by --halve, or not at all in a sweep; leave it out");
    for (int i = 0; i < cli->num_flags; i++)
        if (strcmp(cli->flags[i].flag->name, "over") == 0)
            TRI_TRY(read_key(s, cli->flags[i].value, err));
    if (s->num_keys == 0)
        return tri_fail(err, TR_ERROR_INPUT,
                        "say what is to vary: trireme sweep RECIPE --over optim.lr=1e-3,3e-3");
    TRI_TRY(name_dir(s, err));
    return make_runs(s, err);
}

void tri_sweep_free(tri_sweep *s)
{
    for (int i = 0; i < s->num_runs; i++) {
        for (int k = 0; k < s->num_keys && s->runs[i].value; k++)
            free(s->runs[i].value[k]);
        free(s->runs[i].value);
        free(s->runs[i].name);
        free(s->runs[i].dir);
    }
    for (int k = 0; k < s->num_keys; k++) {
        for (int i = 0; i < s->keys[k].num_values; i++)
            free(s->keys[k].values[i]);
        free(s->keys[k].values);
        free(s->keys[k].name);
    }
    free(s->runs);
    free(s->dir);
}
