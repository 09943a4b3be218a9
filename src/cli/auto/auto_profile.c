/* What work takes on this machine, for layout.auto: measured once and kept in the user's cache. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fs.h"
#include "cli/auto/auto_parts.h"
#include "cli/bench/bench_device.h"
#include "cli/lines.h"
#include "device/cpu/isa.h"
#include "device/device.h"

enum { MOST_PATH = 1024 };

/* The folder of this program in the user's cache; "": there is none. */
static void cache_dir(char *dir, size_t size)
{
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    dir[0] = 0;
    if (cache && cache[0] == '/')
        snprintf(dir, size, "%s/trireme", cache);
    else if (home && home[0] == '/')
        snprintf(dir, size, "%s/.cache/trireme", home);
}

static void add_word(char *name, size_t size, const char *word)
{
    size_t used = strlen(name);
    bool between = used > 0;
    for (; *word && used + 2 < size; word++) {
        bool plain = isalnum((unsigned char)*word) || *word == '.';
        if (plain && between)
            name[used++] = '-';
        between = used > 0 && !plain;
        if (plain)
            name[used++] = *word;
    }
    name[used] = 0;
}

/* By all that a profile depends on: "AMD-EPYC-2-cores-avx512-0.1.0.json". */
static void cache_path(const tr_settings *settings, char path[MOST_PATH])
{
    char dir[MOST_PATH / 2], model[TRI_MEASURED_NAME] = "", name[MOST_PATH / 4] = "", cores[32];
    const char *isa = tr_settings_string(settings, "run.isa");
    path[0] = 0;
    cache_dir(dir, sizeof dir);
    if (!dir[0])
        return;
    tri_device_bench_model(model, sizeof model);
    snprintf(cores, sizeof cores, "%d cores", tri_device_num_cores());
    add_word(name, sizeof name, model[0] ? model : "cpu");
    add_word(name, sizeof name, cores);
    add_word(name, sizeof name, strcmp(isa, "auto") == 0 ? tri_isa_name(tri_isa_detect()) : isa);
    add_word(name, sizeof name, TRIREME_VERSION);
    snprintf(path, MOST_PATH, "%s/%s.json", dir, name);
}

static bool is_ours(const tri_measured *profile)
{
    return strcmp(profile->kind, "cpu") == 0 && profile->cores == tri_device_num_cores() &&
           profile->num_tables > 0;
}

static bool read_kept(const char *path, tri_measured *profile)
{
    if (!path[0] || !tri_path_exists(path) || tri_measured_read(path, profile, NULL) != TR_OK)
        return false;
    if (is_ours(profile))
        return true;
    tri_measured_fini(profile);
    return false;
}

/* Nobody waits for what cannot be kept: the run goes on without. */
static bool keep(const tri_measured *profile, const char *path, tr_error *why)
{
    char dir[MOST_PATH];
    snprintf(dir, sizeof dir, "%s", path);
    char *slash = strrchr(dir, '/');
    if (!slash)
        return tri_fail(why, TR_ERROR_RUNTIME, "neither HOME nor XDG_CACHE_HOME is set") == TR_OK;
    *slash = 0;
    return tri_make_dirs(dir, why) == TR_OK && tri_measured_write(profile, path, why) == TR_OK;
}

tr_status tri_auto_profile(tri_auto *a, tr_error *err)
{
    const double seconds = 20;
    char path[MOST_PATH];
    tr_error why = {0};
    cache_path(a->cli->settings, path);
    a->is_measured = true;
    snprintf(a->by, sizeof a->by, "what was measured here, in %.340s", path);
    if (read_kept(path, &a->profile))
        return TR_OK;
    if (!a->quiet)
        tri_cli_line("profile", "measuring what work takes on this machine, once, for %.0f s%s%s",
                     seconds, path[0] ? "; kept in " : "", path);
    fflush(stdout);
    a->is_measured = false;
    TRI_TRY(tri_device_bench_run(a->cli, seconds, a->quiet, &a->profile, err));
    a->is_measured = true;
    if (keep(&a->profile, path, &why))
        return TR_OK;
    snprintf(a->by, sizeof a->by, "what was measured when it began");
    if (!a->quiet)
        tri_cli_line("note", "the profile cannot be kept, so the next run measures again: %s",
                     why.message);
    return TR_OK;
}
