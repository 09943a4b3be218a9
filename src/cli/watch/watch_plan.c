/* What is known of a run's plan. Compiling is done by a process of its own, `trireme plan --page`:
 * it may take long and much memory, and ends with both. What it says is kept. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/json.h"
#include "cli/doc/json_doc.h"
#include "cli/watch/watch_parts.h"
#include "config/settings_table.h"

extern char **environ;

enum { MOST_BYTES = 16 << 20, MOST_SECONDS = 60 };

/* ---- what is kept ---- */

static bool find_kept(tri_watch *w, const char *key, const char *stamp, char **text)
{
    bool found = false;
    pthread_mutex_lock(&w->kept_lock);
    for (int i = 0; i < TRI_WATCH_MAX_KEPT && !found; i++)
        if (w->kept[i].text && strcmp(w->kept[i].key, key) == 0 &&
            strcmp(w->kept[i].stamp, stamp) == 0) {
            w->kept[i].used = tri_now_ns();
            *text = strdup(w->kept[i].text);
            found = true;
        }
    pthread_mutex_unlock(&w->kept_lock);
    return found;
}

static void keep(tri_watch *w, const char *key, const char *stamp, const char *text)
{
    char *copy = strdup(text);
    if (!copy)
        return;
    pthread_mutex_lock(&w->kept_lock);
    tri_watch_kept *place = &w->kept[0];
    for (int i = 0; i < TRI_WATCH_MAX_KEPT; i++)
        if (strcmp(w->kept[i].key, key) == 0) {
            place = &w->kept[i];
            break;
        } else if (w->kept[i].used < place->used) {
            place = &w->kept[i];
        }
    free(place->text);
    *place = (tri_watch_kept){.text = copy, .used = tri_now_ns()};
    snprintf(place->key, sizeof place->key, "%s", key);
    snprintf(place->stamp, sizeof place->stamp, "%s", stamp);
    pthread_mutex_unlock(&w->kept_lock);
}

void tri_watch_stamp(const char *dir, const char *name, char *stamp, size_t size)
{
    struct stat info;
    char *path = tri_path_join(dir, name);
    *stamp = 0;
    if (path && stat(path, &info) == 0)
        snprintf(stamp, size, "%lld %lld %lld.%09ld", (long long)info.st_ino,
                 (long long)info.st_size, (long long)info.st_mtim.tv_sec, info.st_mtim.tv_nsec);
    free(path);
}

tr_status tri_watch_keep(tri_watch *w, const char *key, const char *stamp, tri_watch_make make,
                         void *context, char **text, tr_error *err)
{
    *text = NULL;
    if (find_kept(w, key, stamp, text))
        return *text ? TR_OK : tri_fail(err, TR_ERROR_RUNTIME, "no memory for a document");
    pthread_mutex_lock(&w->making_lock); /* one at a time, and nothing twice */
    tr_status status = TR_OK;
    if (!find_kept(w, key, stamp, text)) {
        status = make(context, text, err);
        if (status == TR_OK)
            keep(w, key, stamp, *text);
    }
    pthread_mutex_unlock(&w->making_lock);
    if (status == TR_OK && !*text)
        status = tri_fail(err, TR_ERROR_RUNTIME, "no memory for a document");
    return status;
}

/* ---- the process ---- */

static bool spawn(const char *dir, const char *rank, int output, pid_t *pid)
{
    char *args[] = {(char *)(uintptr_t) "trireme",
                    (char *)(uintptr_t) "plan",
                    NULL,
                    (char *)(uintptr_t) "--page",
                    (char *)(uintptr_t) "--rank",
                    NULL,
                    NULL};
    posix_spawn_file_actions_t actions;
    char *path = NULL;
    /* A path with a '/' in it is no recipe's name and no flag. */
    if (asprintf(&path, "%s%s", *dir == '/' ? "" : "./", dir) < 0)
        return false;
    args[2] = path;
    args[5] = (char *)(uintptr_t)rank;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, output, STDERR_FILENO);
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    int wrong = posix_spawn(pid, "/proc/self/exe", &actions, NULL, args, environ);
    posix_spawn_file_actions_destroy(&actions);
    free(path);
    return wrong == 0;
}

/* All that it prints, for as long as that takes; false: too long, or too much. */
static bool read_all(int fd, tri_text *text)
{
    char bytes[16 << 10];
    double until = tri_now_s() + MOST_SECONDS;
    for (;;) {
        struct pollfd ready = {.fd = fd, .events = POLLIN};
        double left = until - tri_now_s();
        if (left <= 0 || text->length > MOST_BYTES)
            return false;
        if (poll(&ready, 1, (int)(left * 1e3) + 1) <= 0)
            continue;
        ssize_t num = read(fd, bytes, sizeof bytes);
        if (num < 0 && errno == EINTR)
            continue;
        if (num <= 0)
            return num == 0;
        tri_text_add_bytes(text, bytes, (size_t)num);
    }
}

typedef struct plan_wish {
    const tri_watched_run *run;
    int rank;
} plan_wish;

static void say_why(tri_text *text, const char *why)
{
    json_t *root = tri_doc_begin();
    static const char prefix[] = "trireme: ";
    char line[400];
    if (strncmp(why, prefix, sizeof prefix - 1) == 0)
        why += sizeof prefix - 1;
    snprintf(line, sizeof line, "%.*s", (int)strcspn(why, "\n"), why);
    tri_doc_text(root, "why", line);
    tri_text_fini(text);
    tri_text_init(text);
    (void)tri_doc_add(root, text, NULL);
}

/* Plug-ins are code, which looking at a run must not run. */
static bool has_plugins(const char *dir)
{
    tr_settings *settings = NULL;
    char *path = tri_path_join(dir, "config.yaml");
    bool any = path && tr_settings_create(&settings, NULL) == TR_OK &&
               tri_settings_look(settings, path, NULL) == TR_OK &&
               *tr_settings_string(settings, "run.plugins");
    tr_settings_destroy(settings);
    free(path);
    return any;
}

static tr_status make_plan(void *context, char **made, tr_error *err)
{
    const plan_wish *wish = context;
    int ends[2], how = 0;
    char rank[16];
    pid_t pid;
    tri_text text;
    tri_text_init(&text);
    snprintf(rank, sizeof rank, "%d", wish->rank);
    if (has_plugins(wish->run->dir)) {
        say_why(&text, "the settings name plug-ins, which are not loaded to look at a run");
    } else if (pipe2(ends, O_CLOEXEC) != 0) {
        return tri_fail(err, TR_ERROR_RUNTIME, "no pipe for the plan: %s", strerror(errno));
    } else if (!spawn(wish->run->dir, rank, ends[1], &pid)) {
        close(ends[0]);
        close(ends[1]);
        return tri_fail(err, TR_ERROR_RUNTIME, "no process can be started for the plan");
    } else {
        close(ends[1]);
        bool whole = read_all(ends[0], &text);
        close(ends[0]);
        if (!whole)
            kill(pid, SIGKILL);
        while (waitpid(pid, &how, 0) < 0 && errno == EINTR)
            ;
        if (!whole)
            say_why(&text, "compiling the plan takes too long to show it here; `trireme plan` "
                           "does it without a limit");
        else if (!WIFEXITED(how) || WEXITSTATUS(how) != 0)
            say_why(&text, text.chars ? text.chars : "the plan cannot be compiled");
    }
    if (text.failed || !text.chars) {
        tri_text_fini(&text);
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for the plan");
    }
    *made = text.chars;
    return TR_OK;
}

tr_status tri_watch_plan(tri_watch *w, const tri_watched_run *run, int rank, json_t **plan,
                         tr_error *err)
{
    char key[64], stamp[96], *text = NULL;
    plan_wish wish = {run, rank};
    *plan = NULL;
    snprintf(key, sizeof key, "plan %s %d", run->id, rank);
    tri_watch_stamp(run->dir, "config.yaml", stamp, sizeof stamp);
    tr_status status = tri_watch_keep(w, key, stamp, make_plan, &wish, &text, err);
    if (status == TR_OK &&
        tri_json_load("the plan", text, strlen(text), 0, plan, NULL, err) == TR_ERROR_RUNTIME)
        status = TR_ERROR_RUNTIME;
    if (status == TR_OK && !*plan)
        status = tri_fail(err, TR_ERROR_RUNTIME, "the plan cannot be read");
    free(text);
    return status;
}

void tri_watch_get_memory(void *context, const tri_http_request *request, tri_http_reply *reply)
{
    tr_error err = {0};
    const tri_watched_run *run = tri_watch_asked(context, request, "id", reply);
    const char *text = tri_http_target_arg(&request->target, "rank");
    char *end;
    long rank = text && *text ? strtol(text, &end, 10) : 0;
    json_t *plan;
    if (!run)
        return;
    if ((text && *text && *end) || rank < 0 || rank >= 1 << 20) {
        tri_http_refuse(reply, 400, "rank is a number from 0 on");
        return;
    }
    tr_status status = tri_watch_plan(context, run, (int)rank, &plan, &err);
    if (status == TR_OK) {
        json_t *root = tri_doc_begin(), *boxes = json_object_get(plan, "addresses");
        if (boxes) {
            json_object_update(root, boxes);
        } else {
            tri_doc_null(root, "rows");
            json_object_set(root, "why", json_object_get(plan, "why"));
        }
        json_decref(plan);
        status = tri_doc_add(root, &reply->text, &err);
    }
    tri_watch_answer(reply, status, &err);
}

/* ---- why this layout ---- */

/* The comments above the settings, and what was noted at the start. */
void tri_watch_get_planner(void *context, const tri_http_request *request, tri_http_reply *reply)
{
    tr_error err = {0};
    const tri_watched_run *run = tri_watch_asked(context, request, "id", reply);
    if (!run)
        return;
    char *path = tri_path_join(run->dir, "config.yaml"), *text = NULL;
    size_t num_bytes = 0;
    json_t *root = tri_doc_begin(), *lines = tri_doc_list(root, "lines");
    if (path && tri_file_read(path, &text, &num_bytes, NULL) == TR_OK)
        for (char *at = text, *next; at && *at == '#'; at = next) {
            next = strchr(at, '\n');
            if (next)
                *next++ = 0;
            at += 1 + (at[1] == ' ');
            tri_doc_text_item(lines, at);
        }
    free(text);
    free(path);
    bool any = json_array_size(lines) > 0;
    if (!any) {
        json_decref(root);
        tri_text_add(&reply->text, "null\n");
        return;
    }
    tri_watch_answer(reply, tri_doc_add(root, &reply->text, &err), &err);
}
