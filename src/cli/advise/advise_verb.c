/* trireme plan --advise: flags in, text or JSON out. */
#include <stdio.h>
#include <string.h>

#include "cli/advise/advise.h"
#include "cli/sums/sums.h"
#include "mesh/mesh.h"

static tr_status check(const tri_cli *cli, tr_error *err)
{
    static const char *const flags[] = {"device", "devices", "cluster", "link", NULL};
    TRI_TRY(tri_sums_only(cli, "advise", flags, err));
    for (int i = 0; i < cli->num_assignments; i++)
        TRI_TRY(tri_advise_may_set(cli->assignments[i], err));
    if (tri_cli_flag(cli, "device") || tri_cli_flag(cli, "cluster"))
        return TR_OK;
    return tri_fail(err, TR_ERROR_INPUT,
                    "--advise is about a machine; add --device h100 --devices 8, or --cluster "
                    "dgx-h100:4 (trireme place --devices lists them)");
}

/* All devices of the cluster, unless --devices takes fewer. */
static tr_status read_machine(const tri_cli *cli, tri_sim_machine *machine, int64_t *devices,
                              tr_error *err)
{
    bool some = tri_cli_flag(cli, "devices") != NULL;
    *devices = 1;
    TRI_TRY(tri_cli_flag_int(cli, "devices", 1, TRI_MAX_RANKS, devices, err));
    TRI_TRY(tri_sim_machine_read(cli, (uint32_t)*devices, machine, err));
    const tri_cluster *cluster = &machine->model.cluster;
    if (!some)
        *devices = (int64_t)cluster->nodes * cluster->devices_per_node;
    return TR_OK;
}

static bool is_plain(const char *word)
{
    return word[strspn(word, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                             "_-+=.,:/@%")] == 0;
}

/* A word as a shell takes it. */
static void add_word(tri_text *text, const char *before, const char *word)
{
    tri_text_add(text, " %s", before);
    if (is_plain(word)) {
        tri_text_add(text, "%s", word);
        return;
    }
    tri_text_add(text, "'");
    for (; *word; word++)
        tri_text_add(text, *word == '\'' ? "'\\''" : "%c", *word);
    tri_text_add(text, "'");
}

static void add_command(const tri_cli *cli, const tri_advice *advice, tri_text *text)
{
    char settings[TRI_ADVISE_SETTINGS][TRI_ADVISE_ASSIGNMENT];
    tri_text_add(text, "trireme train");
    if (cli->file)
        add_word(text, "", cli->file);
    for (int i = 0; i < cli->num_plugins; i++)
        add_word(text, "--plugin ", cli->plugins[i]);
    for (int i = 0; i < cli->num_assignments; i++)
        add_word(text, "--set ", cli->assignments[i]);
    if (advice->chosen < 0)
        return;
    int num = tri_advised_settings(advice, &advice->trials[advice->chosen].layout, settings);
    for (int i = 0; i < num; i++)
        add_word(text, "--set ", settings[i]);
}

static tr_status print(const tri_cli *cli, const tri_advice *advice, tr_error *err)
{
    tri_text command, text;
    tri_text_init(&command);
    tri_text_init(&text);
    add_command(cli, advice, &command);
    tr_status status;
    if (tri_cli_flag(cli, "json")) {
        status = tri_advice_json(advice, command.chars, err);
    } else {
        status = tri_advice_text(advice, command.chars, &text, err);
        if (status == TR_OK)
            status = tri_text_put(&text, stdout, err);
    }
    tri_text_fini(&command);
    tri_text_fini(&text);
    return status;
}

static tr_status misfit(const tri_advice *advice, tr_error *err)
{
    char plan[16], room[16], more[80] = "";
    const tri_advised_trial *least = &advice->trials[advice->smallest];
    if (advice->devices_needed > 0)
        snprintf(more, sizeof more, "take %lld devices, ", (long long)advice->devices_needed);
    return tri_fail(err, TR_ERROR_INPUT,
                    "nothing that was tried fits: the smallest plan is %s, and a device has room "
                    "for %s; %sdevices with more memory, shorter rows or a smaller model",
                    tri_text_bytes((double)least->plan_bytes, plan),
                    tri_text_bytes((double)advice->room_bytes, room), more);
}

tr_status tri_plan_advise(const tri_cli *cli, tr_error *err)
{
    tri_sim_machine machine;
    tri_advice advice;
    int64_t devices;
    TRI_TRY(check(cli, err));
    TRI_TRY(read_machine(cli, &machine, &devices, err));
    TRI_TRY(tri_advice_make(cli->settings, &machine, devices, &advice, err));
    tr_status status = print(cli, &advice, err);
    if (status == TR_OK && advice.chosen < 0)
        status = misfit(&advice, err);
    tri_advice_fini(&advice);
    return status;
}
