/* trireme watch: a page about runs, in a process of its own. */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/fs.h"
#include "cli/cli.h"
#include "cli/runs/run_find.h"
#include "cli/signals.h"
#include "cli/watch/watch.h"
#include "comm/control/token_file.h"

enum { DEFAULT_PORT = 7717, NICE = 5, TICK_US = 50000 };

typedef struct watch_command {
    const char *const *roots;
    int num_roots;
    int64_t port;
    const char *address;
    char token[TRI_CONTROL_MAX_TOKEN]; /* "": none is needed */
    bool made;                         /* it was made here */
} watch_command;

/* Names that mean nothing are told before anything is started. */
static tr_status check_roots(const watch_command *c, tr_error *err)
{
    for (int i = 0; i < c->num_roots; i++) {
        char *dir = NULL;
        if (tri_path_is_dir(c->roots[i]))
            continue;
        TRI_TRY(tri_run_dir_of(c->roots[i], &dir, err));
        free(dir);
    }
    return TR_OK;
}

static tr_status read_token(const char *path, char token[TRI_CONTROL_MAX_TOKEN], tr_error *err)
{
    enum { LEAST = 16 };
    tr_error why = {0};
    if (tri_token_file_read(path, 0, token, &why) != TR_OK)
        return tri_fail(err, TR_ERROR_INPUT,
                        "--token-file %s cannot be used: it is a file of yours with a secret in "
                        "it, which nobody else may read (chmod 600)",
                        path);
    token[strcspn(token, "\r\n")] = 0;
    if (strlen(token) < LEAST)
        return tri_fail(err, TR_ERROR_INPUT,
                        "--token-file %s: the token has fewer than %d letters, and could be "
                        "guessed; `openssl rand -hex 16` makes a good one",
                        path, LEAST);
    for (const char *c = token; *c; c++)
        if (*c <= ' ' || *c > '~' || strchr("&#+%?=;,\"\\", *c))
            return tri_fail(err, TR_ERROR_INPUT,
                            "--token-file %s: the token has letters that an address cannot have; "
                            "use letters and digits",
                            path);
    return TR_OK;
}

static tr_status read_command(const tri_cli *cli, watch_command *c, tr_error *err)
{
    static const char *const here[] = {TRI_RUNS_FOLDER};
    const char *file = tri_cli_flag(cli, "token-file");
    *c = (watch_command){.roots = cli->num_operands > 0 ? cli->operands : here,
                         .num_roots = cli->num_operands > 0 ? cli->num_operands : 1,
                         .port = DEFAULT_PORT,
                         .address = tri_cli_flag(cli, "address")};
    TRI_TRY(tri_cli_flag_int(cli, "port", 0, 65535, &c->port, err));
    if (cli->num_operands > 0)
        TRI_TRY(check_roots(c, err));
    if (file)
        return read_token(file, c->token, err);
    c->made = !tri_http_is_loopback(c->address);
    return c->made ? tri_auth_token(c->token, err) : TR_OK;
}

static void say_where(const watch_command *c, const tri_http_server *server)
{
    char host[256] = "127.0.0.1";
    if (c->address)
        snprintf(host, sizeof host, "%s", c->address);
    if (c->address && (strcmp(c->address, "0.0.0.0") == 0 || strcmp(c->address, "::") == 0))
        gethostname(host, sizeof host - 1);
    bool six = strchr(host, ':') != NULL;
    printf("http://%s%s%s:%d/%s%s\n", six ? "[" : "", host, six ? "]" : "", tri_http_port(server),
           c->made ? "?token=" : "", c->made ? c->token : "");
    if (*c->token && !c->made)
        printf("the token of the file is needed: add ?token=... once\n");
    printf("Ctrl-C ends this page; runs go on\n");
    fflush(stdout);
}

static tr_status serve(const watch_command *c, tri_watch *watch, tr_error *err)
{
    tri_http_config config = {.address = c->address,
                              .port = (int)c->port,
                              .token = *c->token ? c->token : NULL,
                              .routes = tri_watch_routes,
                              .other = tri_watch_asset,
                              .feed = tri_watch_feed(watch),
                              .context = watch};
    tri_http_server *server;
    TRI_TRY(tri_http_start(&config, &server, err));
    tr_status status = tri_watch_follow(watch, err);
    if (status == TR_OK)
        say_where(c, server);
    for (int n = 0; status == TR_OK && !tri_signals_caught(); n++) {
        usleep(TICK_US);
        if (n % 20 == 0)
            tri_http_tick(server);
    }
    tri_watch_unfollow(watch);
    tri_http_stop(server);
    return status;
}

int tri_verb_watch(const tri_cli *cli)
{
    watch_command command;
    tri_watch *watch = NULL;
    tr_error err = {0};
    if (read_command(cli, &command, &err) != TR_OK)
        return tri_cli_fail(&err);
    tri_signals_outlive_readers();
    tri_signals_catch();
    setpriority(PRIO_PROCESS, 0, NICE); /* runs come first */
    tr_status status = tri_watch_create(command.roots, command.num_roots, &watch, &err);
    if (status == TR_OK)
        status = serve(&command, watch, &err);
    tri_watch_destroy(watch);
    if (status != TR_OK)
        return tri_cli_fail(&err);
    printf("the page has ended\n");
    return TRI_EXIT_OK;
}
