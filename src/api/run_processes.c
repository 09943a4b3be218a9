/* The program is started with the settings on one descriptor and tells what happens on another. It
 * launches its ranks as it does for a person, with all that belongs to it: the run directory, its
 * lock, restarts. Nothing of this process is copied but its environment, and nothing of it changes:
 * no signal is caught, no child is left. What the program says to people is kept, for the error. */
#include "api/run_processes.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "api/run_news.h"
#include "base/error.h"
#include "base/exit_code.h"

extern char **environ;

enum { SETTINGS_FD = 3, NEWS_FD = 4, FIRST_OWN_FD = 10, MAX_SAID = 4096 };

typedef struct started {
    const tr_run_options *options;
    tr_run_state state;
    pid_t pid;
    int news, errors; /* our ends; -1: closed */
    tri_text line;    /* of news, as far as it has come */
    bool greeted, begun, failed, asked;
    char wrong[200]; /* what is wrong with the news themselves; "": nothing */
    char why[1000];  /* of the end; "": there is no word on it */
    char said[MAX_SAID];
    size_t num_said;
} started;

/* ---- the program ---- */

static bool take_program(const char *dir, size_t length, const char *rest, char **path)
{
    if (asprintf(path, "%.*s%s", (int)length, dir, rest) < 0)
        *path = NULL;
    if (*path && access(*path, X_OK) == 0)
        return true;
    free(*path);
    *path = NULL;
    return false;
}

static tr_status find_program(const char *given, char **path, tr_error *err)
{
    Dl_info library = {0};
    char own[4096] = "";
    if (given) {
        if (take_program(given, strlen(given), "", path))
            return TR_OK;
        return tri_fail(err, TR_ERROR_INPUT,
                        "tr_run_options.program is %.500s, which cannot be run: %s; give the path "
                        "of the program trireme",
                        given, strerror(errno));
    }
    dladdr((void *)(uintptr_t)tr_version, &library);
    ssize_t length = readlink("/proc/self/exe", own, sizeof own - 1);
    own[length > 0 ? length : 0] = 0;
    const char *files[] = {library.dli_fname ? library.dli_fname : "", own};
    for (int i = 0; i < 2; i++) {
        const char *slash = strrchr(files[i], '/');
        if (slash && (take_program(files[i], (size_t)(slash - files[i]), "/trireme", path) ||
                      take_program(files[i], (size_t)(slash - files[i]), "/../bin/trireme", path)))
            return TR_OK;
    }
    return tri_fail(err, TR_ERROR_INPUT,
                    "ranks as processes (TR_RANKS_PROCESSES) need the program trireme, which is "
                    "neither beside the library nor beside this program; give its path in "
                    "tr_run_options.program");
}

/* What would make the program a rank of somebody else's world is left out of its environment. */
static char **environment(void)
{
    static const char *const not [] = {
        "RANK=", "WORLD_SIZE=",   "LOCAL_RANK=",    "OMPI_COMM_WORLD_", "PMI_",
        "PALS_", "SLURM_PROCID=", "TRIREME_TOKEN=", "MASTER_"};
    size_t num = 0, kept = 0;
    while (environ && environ[num])
        num++;
    char **copy = calloc(num + 1, sizeof *copy);
    for (size_t i = 0; copy && i < num; i++) {
        bool leave = false;
        for (size_t k = 0; k < sizeof not / sizeof *not ; k++)
            leave |= strncmp(environ[i], not [k], strlen(not [k])) == 0;
        if (!leave)
            copy[kept++] = environ[i];
    }
    return copy;
}

/* The settings as a file that has no name. */
static tr_status write_settings(const tr_settings *settings, int *fd, tr_error *err)
{
    *fd = memfd_create("trireme-settings", MFD_CLOEXEC);
    FILE *file = *fd >= 0 ? fdopen(dup(*fd), "w") : NULL;
    if (!file)
        return tri_fail(err, TR_ERROR_RUNTIME, "the settings cannot be handed on: %s",
                        strerror(errno));
    tr_status status = tr_settings_write_yaml(settings, file, err);
    fclose(file);
    return status;
}

/* ---- starting it ---- */

/* Where none of the numbers is in the way that the program is to have. */
static int move_up(int fd)
{
    int moved = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, FIRST_OWN_FD);
    if (fd >= 0)
        close(fd);
    return moved;
}

static bool make_pipe(int ends[2])
{
    if (pipe2(ends, O_CLOEXEC) != 0) {
        ends[0] = ends[1] = -1;
        return false;
    }
    ends[0] = move_up(ends[0]);
    ends[1] = move_up(ends[1]);
    return ends[0] >= 0 && ends[1] >= 0;
}

static int spawn(const char *program, char *const *words, char *const *env, int settings, int news,
                 int errors, pid_t *pid)
{
    posix_spawn_file_actions_t files;
    posix_spawnattr_t how;
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    if (posix_spawn_file_actions_init(&files) != 0)
        return ENOMEM;
    if (posix_spawnattr_init(&how) != 0) {
        posix_spawn_file_actions_destroy(&files);
        return ENOMEM;
    }
    int failed = posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
    failed |= posix_spawn_file_actions_addopen(&files, 1, "/dev/null", O_WRONLY, 0);
    failed |= posix_spawn_file_actions_adddup2(&files, errors, 2);
    failed |= posix_spawn_file_actions_adddup2(&files, settings, SETTINGS_FD);
    failed |= posix_spawn_file_actions_adddup2(&files, news, NEWS_FD);
    failed |= posix_spawn_file_actions_addclosefrom_np(&files, NEWS_FD + 1);
    /* A group of its own: a Ctrl-C is this program's to answer. */
    failed |= posix_spawnattr_setpgroup(&how, 0);
    failed |= posix_spawnattr_setsigmask(&how, &none);
    failed |= posix_spawnattr_setsigdefault(&how, &all);
    failed |= posix_spawnattr_setflags(&how, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK |
                                                 POSIX_SPAWN_SETSIGDEF);
    if (!failed)
        failed = posix_spawn(pid, program, &files, &how, words, env);
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&how);
    return failed;
}

static tr_status start(started *s, const char *program, const tr_settings *settings, int file,
                       tr_error *err)
{
    static const char *const typed[] = {"run.plugins", "run.nccl_library"}; /* no file sets them */
    char *words[16] = {(char *)"trireme", (char *)"train",  (char *)"/proc/self/fd/3",
                       (char *)"--quiet", (char *)"--news", (char *)"4"};
    char *given[2] = {NULL, NULL};
    int news[2] = {-1, -1}, errors[2] = {-1, -1}, num = 6, failed = 0;
    char **env = environment();
    for (int i = 0; i < 2; i++)
        if (*tr_settings_string(settings, typed[i])) {
            if (asprintf(&given[i], "--set=%s=%s", typed[i],
                         tr_settings_string(settings, typed[i])) < 0)
                given[i] = NULL;
            failed |= !given[i];
            words[num++] = given[i];
        }
    if (failed || !env || !make_pipe(news) || !make_pipe(errors))
        failed = errno ? errno : ENOMEM;
    else
        failed = spawn(program, words, env, file, news[1], errors[1], &s->pid);
    s->news = news[0];
    s->errors = errors[0];
    for (int i = 0; i < 2; i++)
        free(given[i]);
    free(env);
    if (news[1] >= 0)
        close(news[1]);
    if (errors[1] >= 0)
        close(errors[1]);
    return failed ? tri_fail(err, TR_ERROR_RUNTIME, "%s cannot be started: %s", program,
                             strerror(failed))
                  : TR_OK;
}

/* ---- what it tells ---- */

static void tell(started *s, tr_run_moment moment, const char *text)
{
    tr_run_news news = {.moment = moment, .state = &s->state, .text = text};
    if (s->options->tell)
        s->options->tell(s->options->context, &news);
}

static void ask(started *s)
{
    const tr_run_options *o = s->options;
    if (s->asked || !o->stops || !o->stops(o->context))
        return;
    s->asked = true;
    kill(s->pid, SIGTERM); /* not waited for yet, so the number is its own */
}

/* The end is told when the process has ended: its ranks may be started again. */
static void take_line(started *s, char *line)
{
    tr_run_moment moment;
    const char *text;
    bool failed;
    if (!s->greeted) {
        s->greeted = strncmp(line, TRI_RUN_NEWS_HELLO, strlen(TRI_RUN_NEWS_HELLO) - 1) == 0;
        if (!s->greeted && !*s->wrong)
            snprintf(s->wrong, sizeof s->wrong,
                     "the program trireme is not of this library's version (%s)", TRIREME_VERSION);
        return;
    }
    if (*s->wrong || !tri_run_news_parse(line, &moment, &s->state, &failed, &text))
        return;
    if (moment == TR_RUN_ENDS) {
        s->failed = failed;
        snprintf(s->why, sizeof s->why, "%s", text ? text : "");
        return;
    }
    if (moment == TR_RUN_STEP)
        ask(s);
    if (moment == TR_RUN_BEGINS && s->begun) {
        moment = TR_RUN_WARNING;
        text = "the ranks were started again";
    }
    s->begun |= moment == TR_RUN_BEGINS;
    tell(s, moment, text);
}

static void take_news(started *s, const char *bytes, size_t num)
{
    tri_text_add_bytes(&s->line, bytes, num);
    char *from = s->line.chars, *end;
    while (from && !s->line.failed && (end = strchr(from, '\n'))) {
        *end = 0;
        take_line(s, from);
        from = end + 1;
    }
    if (!from)
        return;
    size_t left = s->line.length - (size_t)(from - s->line.chars);
    memmove(s->line.chars, from, left + 1);
    s->line.length = left;
}

/* The last of it is what matters. */
static void take_errors(started *s, const char *bytes, size_t num)
{
    size_t room = sizeof s->said - 1;
    if (num > room) {
        bytes += num - room;
        num = room;
    }
    size_t drop = s->num_said + num > room ? s->num_said + num - room : 0;
    memmove(s->said, s->said + drop, s->num_said - drop);
    s->num_said -= drop;
    memcpy(s->said + s->num_said, bytes, num);
    s->num_said += num;
    s->said[s->num_said] = 0;
}

/* Whether the descriptor has ended. */
static bool drain(started *s, int fd, void (*take)(started *, const char *, size_t))
{
    char bytes[4096];
    ssize_t got = read(fd, bytes, sizeof bytes);
    if (got > 0)
        take(s, bytes, (size_t)got);
    return got == 0 || (got < 0 && errno != EINTR && errno != EAGAIN);
}

static void listen_to(started *s)
{
    while (s->news >= 0 || s->errors >= 0) {
        struct pollfd both[] = {{.fd = s->news, .events = POLLIN},
                                {.fd = s->errors, .events = POLLIN}};
        if (poll(both, 2, -1) < 0 && errno != EINTR)
            break;
        if (both[0].revents && drain(s, s->news, take_news)) {
            close(s->news);
            s->news = -1;
        }
        if (both[1].revents && drain(s, s->errors, take_errors)) {
            close(s->errors);
            s->errors = -1;
        }
    }
}

/* ---- its end ---- */

/* The last message of the program to people, without its name and on one line. */
static const char *message_of(started *s)
{
    static const char name[] = "trireme: ";
    char *from = NULL;
    for (char *at = s->said; (at = strstr(at, name)); at += sizeof name - 1)
        if ((at == s->said || at[-1] == '\n') && strncmp(at + sizeof name - 1, "warning", 7) != 0 &&
            strncmp(at + sizeof name - 1, "note", 4) != 0)
            from = from ? from : at + sizeof name - 1;
    if (!from)
        return NULL;
    for (char *c = from; *c; c++)
        *c = *c == '\n' ? (c[1] ? ' ' : 0) : *c;
    return from;
}

static tr_status end(started *s, tr_error *err)
{
    int how = 0;
    pid_t ended;
    while ((ended = waitpid(s->pid, &how, 0)) < 0 && errno == EINTR)
        ;
    const char *said = message_of(s);
    bool known = ended == s->pid; /* a program that ignores SIGCHLD never learns */
    int code = known && WIFEXITED(how) ? WEXITSTATUS(how) : known || s->failed ? -1 : TRI_EXIT_OK;
    if (*s->wrong)
        return tri_fail(err, TR_ERROR_INPUT, "%s; install both anew", s->wrong);
    if (!s->greeted && tri_exit_is_good(code))
        return tri_fail(err, TR_ERROR_INPUT,
                        "tr_run_options.program has ended without a word, so it is not trireme; "
                        "give the path of that");
    if (tri_exit_is_good(code)) {
        s->state.stopped = code != TRI_EXIT_OK || s->state.stopped;
        tell(s, TR_RUN_ENDS,
             s->asked && s->state.stopped ? "asked by the program"
             : *s->why                    ? s->why
                                          : NULL);
        return TR_OK;
    }
    if (known && WIFSIGNALED(how))
        tri_fail(err, TR_ERROR_RUNTIME, "the process that runs the ranks was ended by signal %d",
                 WTERMSIG(how));
    else
        tri_fail(err, code == TRI_EXIT_USAGE ? TR_ERROR_INPUT : TR_ERROR_RUNTIME, "%s",
                 said      ? said
                 : *s->why ? s->why
                           : "the ranks have ended without a word");
    if (s->begun)
        tell(s, TR_RUN_ENDS, err->message);
    return err ? err->status : TR_ERROR_RUNTIME;
}

tr_status tri_train_processes(const tr_settings *settings, const tr_run_options *options,
                              tr_run_state *state, tr_error *err)
{
    started s = {.options = options, .state.eval = {NAN, NAN}, .pid = -1, .news = -1, .errors = -1};
    tr_error own = {0};
    char *program = NULL;
    int file = -1;
    err = err ? err : &own;
    tri_text_init(&s.line);
    tr_status status = find_program(options->program, &program, err);
    if (status == TR_OK)
        status = write_settings(settings, &file, err);
    file = move_up(file);
    if (status == TR_OK)
        status = start(&s, program, settings, file, err);
    if (file >= 0)
        close(file);
    if (status == TR_OK) {
        listen_to(&s);
        status = end(&s, err);
    }
    if (s.news >= 0)
        close(s.news);
    if (s.errors >= 0)
        close(s.errors);
    if (state)
        *state = s.state;
    tri_text_fini(&s.line);
    free(program);
    return status;
}
