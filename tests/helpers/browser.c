/* A person at a browser, for tests of pages: drives a headless Chromium over its debugging pipe.
 *
 *     browser [PROGRAM] < SCRIPT
 *
 * PROGRAM is chromium when nothing is said. A script has a command on each line; what a command
 * finds is printed on a line of its own. The first one that fails ends everything with exit code 1
 * and a line "FAILED: ...". Blank lines and those that begin with # are passed over.
 *
 *     open URL                    and wait until it has loaded
 *     wait [SECONDS] EXPRESSION   until it is true (60 s at most)
 *     eval EXPRESSION             prints its value as JSON; a promise is waited for
 *     check EXPRESSION            fails unless it is true
 *     key NAME [TIMES]            Tab, Shift+Tab, Enter, ArrowLeft, Control+A, a, +, ...
 *     type TEXT                   as if it were pasted
 *     click SELECTOR              in the middle of the element, which is scrolled to
 *     drag SELECTOR X0 Y0 X1 Y1   from one place to another, in shares of the element
 *     hover SELECTOR X Y
 *     size WIDTH HEIGHT [SCALE] [phone]
 *     media dark|light|still|moving   what the reader prefers
 *     shot FILE.png [full|SELECTOR]   a picture of the window, the whole page or an element
 *     heap                        bytes of JavaScript after a collection
 *     errors                      prints what the console has of errors
 *     no-errors                   fails when there was one since the last `open`
 *     urls                        prints what was asked for since the last `open`
 *     only PREFIX                 fails when any of these does not begin so
 *     say TEXT                    prints it
 *
 * The profile is a directory of its own, which is removed; requests to other hosts than loopback
 * are never resolved. The pipe has JSON texts that end in NUL: commands on the browser's
 * descriptor 3, answers and events on its descriptor 4. */
#include <errno.h>
#include <ftw.h>
#include <jansson.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MOST_LINE = 1 << 16, ANSWER_S = 120 };

typedef struct browser {
    pid_t pid;
    int to, from;
    char profile[128];
    char *bytes; /* what was read and is no whole text yet */
    size_t num_bytes, capacity;
    int last_id;
    char *session;
    json_t *errors, *urls; /* since the last open: lists of texts */
    bool loaded;
    bool phone;
} browser;

static browser the_browser;

static int remove_one(const char *path, const struct stat *info, int kind, struct FTW *where)
{
    (void)info, (void)kind, (void)where;
    return remove(path);
}

/* Ends the browser with all its processes: they are a group of their own. */
static void finish(void)
{
    browser *b = &the_browser;
    if (b->pid > 0) {
        kill(-b->pid, SIGKILL);
        waitpid(b->pid, NULL, 0);
    }
    b->pid = 0;
    if (b->profile[0])
        nftw(b->profile, remove_one, 32, FTW_DEPTH | FTW_PHYS);
    b->profile[0] = 0;
}

static void on_signal(int number)
{
    if (the_browser.pid > 0)
        kill(-the_browser.pid, SIGKILL);
    _exit(128 + number);
}

__attribute__((noreturn, format(printf, 1, 2))) static void fail(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    printf("FAILED: ");
    vprintf(format, args);
    printf("\n");
    va_end(args);
    size_t at;
    json_t *text;
    json_array_foreach(the_browser.errors, at, text)
        printf("  console: %s\n", json_string_value(text));
    fflush(stdout);
    finish();
    exit(1);
}

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- the program ---- */

static void become_browser(const char *program, const char *profile, int in, int out)
{
    char data[160];
    snprintf(data, sizeof data, "--user-data-dir=%s", profile);
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    /* Both first above 4, so that neither is closed by what takes its place. */
    int a = dup(in), b = dup(out);
    while (a < 5)
        a = dup(a);
    while (b < 5)
        b = dup(b);
    dup2(a, 3);
    dup2(b, 4);
    if (!freopen("/dev/null", "r", stdin) || !freopen("/dev/null", "w", stderr) ||
        dup2(STDERR_FILENO, STDOUT_FILENO) < 0)
        _exit(127);
    execlp(program, program, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run",
           "--disable-background-networking", "--hide-scrollbars", "--disable-component-update",
           "--disable-sync", "--disable-extensions", "--disable-dev-shm-usage",
           "--disable-default-apps", "--enable-precise-memory-info", "--lang=en-GB",
           "--force-color-profile=srgb",
           "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1 , EXCLUDE localhost",
           "--remote-debugging-pipe", data, "about:blank", (char *)NULL);
    _exit(127);
}

static void start(browser *b, const char *program)
{
    int down[2], up[2];
    const char *folder = getenv("TMPDIR");
    signal(SIGPIPE, SIG_IGN);
    snprintf(b->profile, sizeof b->profile, "%s/trireme-browser-XXXXXX",
             folder && strlen(folder) < 80 ? folder : "/tmp");
    b->errors = json_array();
    b->urls = json_array();
    if (!mkdtemp(b->profile) || pipe(down) != 0 || pipe(up) != 0) {
        b->profile[0] = 0;
        fail("no pipes or no directory for a profile: %s", strerror(errno));
    }
    b->pid = fork();
    if (b->pid == 0) {
        close(down[1]);
        close(up[0]);
        become_browser(program, b->profile, down[0], up[1]);
    }
    close(down[0]);
    close(up[1]);
    b->to = down[1];
    b->from = up[0];
    signal(SIGTERM, on_signal);
    signal(SIGINT, on_signal);
}

/* ---- the pipe ---- */

static void send_all(browser *b, const char *text)
{
    size_t num = strlen(text) + 1; /* with its NUL */
    while (num > 0) {
        ssize_t n = write(b->to, text, num);
        if (n < 0 && errno != EINTR)
            fail("the browser has gone: %s", strerror(errno));
        if (n > 0) {
            text += n;
            num -= (size_t)n;
        }
    }
}

static int send_command(browser *b, const char *method, json_t *params)
{
    json_t *command = json_pack("{si ss}", "id", ++b->last_id, "method", method);
    if (params)
        json_object_set_new(command, "params", params);
    if (b->session)
        json_object_set_new(command, "sessionId", json_string(b->session));
    char *text = json_dumps(command, JSON_COMPACT | JSON_ENSURE_ASCII);
    send_all(b, text);
    free(text);
    json_decref(command);
    return b->last_id;
}

/* Bytes of one whole text, or 0. */
static size_t whole_text(const browser *b)
{
    const char *end = b->num_bytes ? memchr(b->bytes, 0, b->num_bytes) : NULL;
    return end ? (size_t)(end - b->bytes) + 1 : 0;
}

static bool read_more(browser *b, double until)
{
    struct pollfd ready = {.fd = b->from, .events = POLLIN};
    double left = until - now_s();
    if (poll(&ready, 1, left > 0 ? (int)(left * 1000) + 1 : 0) <= 0)
        return false;
    if (b->capacity - b->num_bytes < 65536) {
        b->capacity = 2 * b->capacity + 131072;
        b->bytes = realloc(b->bytes, b->capacity);
    }
    ssize_t n = read(b->from, b->bytes + b->num_bytes, b->capacity - b->num_bytes);
    if (n == 0)
        fail("the browser ended, or could not be started");
    b->num_bytes += n > 0 ? (size_t)n : 0;
    return true;
}

/* The next message, or NULL when none came in time. */
static json_t *next_message(browser *b, double until)
{
    size_t num;
    while ((num = whole_text(b)) == 0)
        if (!read_more(b, until))
            return NULL;
    json_t *message = json_loads(b->bytes, 0, NULL);
    memmove(b->bytes, b->bytes + num, b->num_bytes - num);
    b->num_bytes -= num;
    if (!message)
        fail("the browser sent what is no JSON");
    return message;
}

static const char *text_at(json_t *object, const char *a, const char *b, const char *c)
{
    json_t *value = json_object_get(object, a);
    value = b ? json_object_get(value, b) : value;
    value = c ? json_object_get(value, c) : value;
    return json_is_string(value) ? json_string_value(value) : "";
}

static void note_error(browser *b, const char *kind, const char *text, const char *url)
{
    char line[2048];
    snprintf(line, sizeof line, "%s: %s %s", kind, text, url);
    json_array_append_new(b->errors, json_string(line));
}

static void on_console(browser *b, json_t *params)
{
    const char *type = text_at(params, "type", NULL, NULL);
    if (strcmp(type, "error") != 0 && strcmp(type, "assert") != 0)
        return;
    json_t *first = json_array_get(json_object_get(params, "args"), 0);
    const char *text = text_at(first, "value", NULL, NULL);
    note_error(b, "console.error", *text ? text : text_at(first, "description", NULL, NULL), "");
}

static void on_event(browser *b, json_t *message)
{
    const char *method = text_at(message, "method", NULL, NULL);
    json_t *params = json_object_get(message, "params");
    if (strcmp(method, "Runtime.consoleAPICalled") == 0)
        on_console(b, params);
    else if (strcmp(method, "Runtime.exceptionThrown") == 0)
        note_error(
            b, text_at(params, "exceptionDetails", "text", NULL),
            text_at(json_object_get(params, "exceptionDetails"), "exception", "description", NULL),
            text_at(params, "exceptionDetails", "url", NULL));
    else if (strcmp(method, "Log.entryAdded") == 0 &&
             strcmp(text_at(params, "entry", "level", NULL), "error") == 0)
        note_error(b, "log", text_at(params, "entry", "text", NULL),
                   text_at(params, "entry", "url", NULL));
    else if (strcmp(method, "Network.requestWillBeSent") == 0)
        json_array_append_new(b->urls, json_string(text_at(params, "request", "url", NULL)));
    else if (strcmp(method, "Page.loadEventFired") == 0)
        b->loaded = true;
    else if (strcmp(method, "Inspector.targetCrashed") == 0)
        fail("the page crashed");
}

/* Sends and waits for the answer; events on the way are kept. The caller has a reference. */
static json_t *call(browser *b, const char *method, json_t *params)
{
    int id = send_command(b, method, params);
    double until = now_s() + ANSWER_S;
    json_t *message;
    while ((message = next_message(b, until))) {
        json_t *got = json_object_get(message, "id");
        if (!got)
            on_event(b, message);
        else if (json_integer_value(got) == id) {
            json_t *error = json_object_get(message, "error");
            if (error)
                fail("%s: %s", method, text_at(error, "message", NULL, NULL));
            json_t *result = json_incref(json_object_get(message, "result"));
            json_decref(message);
            return result;
        }
        json_decref(message);
    }
    fail("%s: no answer within %d s", method, ANSWER_S);
}

static void call_only(browser *b, const char *method, json_t *params)
{
    json_decref(call(b, method, params));
}

static void open_tab(browser *b)
{
    static const char *const domains[] = {"Page.enable", "Runtime.enable", "Network.enable",
                                          "Log.enable"};
    json_t *made = call(b, "Target.createTarget", json_pack("{ss}", "url", "about:blank"));
    json_t *attached =
        call(b, "Target.attachToTarget",
             json_pack("{ss sb}", "targetId", text_at(made, "targetId", NULL, NULL), "flatten", 1));
    b->session = strdup(text_at(attached, "sessionId", NULL, NULL));
    json_decref(made);
    json_decref(attached);
    for (size_t i = 0; i < sizeof domains / sizeof *domains; i++)
        call_only(b, domains[i], NULL);
}

/* ---- commands ---- */

/* The value of an expression; the caller has a reference. NULL: it failed, *why says how. */
static json_t *evaluate(browser *b, const char *expression, char why[1024])
{
    json_t *result = call(b, "Runtime.evaluate",
                          json_pack("{ss sb sb sb}", "expression", expression, "returnByValue", 1,
                                    "awaitPromise", 1, "userGesture", 1));
    json_t *details = json_object_get(result, "exceptionDetails");
    json_t *value = NULL;
    if (details)
        snprintf(why, 1024, "%s",
                 text_at(details, "exception", "description", NULL)[0]
                     ? text_at(details, "exception", "description", NULL)
                     : text_at(details, "text", NULL, NULL));
    else
        value = json_incref(json_object_get(json_object_get(result, "result"), "value"));
    if (!details && !value)
        value = json_null();
    json_decref(result);
    return value;
}

static bool is_true(const json_t *value)
{
    return value && !json_is_false(value) && !json_is_null(value) &&
           !(json_is_number(value) && json_number_value(value) == 0) &&
           !(json_is_string(value) && !*json_string_value(value));
}

static void print_value(const json_t *value)
{
    char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(9));
    printf("%s\n", text);
    free(text);
}

static void navigate(browser *b, const char *url)
{
    b->loaded = false;
    json_t *result = call(b, "Page.navigate", json_pack("{ss}", "url", url));
    if (*text_at(result, "errorText", NULL, NULL))
        fail("open %s: %s", url, text_at(result, "errorText", NULL, NULL));
    json_decref(result);
    double until = now_s() + 60;
    while (!b->loaded) {
        json_t *message = next_message(b, until);
        if (!message)
            fail("open %s: it has not loaded within 60 s", url);
        on_event(b, message);
        json_decref(message);
    }
}

/* By way of an empty page: what the one before is about to ask for is not this one's. */
static void do_open(browser *b, const char *url)
{
    navigate(b, "about:blank");
    json_array_clear(b->errors);
    json_array_clear(b->urls);
    navigate(b, url);
}

static void do_wait(browser *b, const char *rest)
{
    char *end, why[1024] = "it is not true";
    double limit = strtod(rest, &end);
    if (end == rest || *end != ' ')
        limit = 60, end = (char *)rest;
    for (double until = now_s() + limit;;) {
        json_t *value = evaluate(b, end, why);
        bool done = is_true(value);
        json_decref(value);
        if (done)
            return;
        if (now_s() > until)
            fail("wait %s: %s", rest, why);
        nanosleep(&(struct timespec){.tv_nsec = 30000000}, NULL);
    }
}

static void do_eval(browser *b, const char *expression, bool check)
{
    char why[1024];
    json_t *value = evaluate(b, expression, why);
    if (!value)
        fail("%s: %s", expression, why);
    if (check && !is_true(value)) {
        print_value(value);
        fail("check %s", expression);
    }
    if (!check)
        print_value(value);
    json_decref(value);
}

/* What the keyboard calls keys that write nothing, and their old numbers. */
static const struct {
    const char *name;
    int code;
    const char *text;
} keys[] = {{"Tab", 9, NULL},      {"Enter", 13, "\r"},      {"Escape", 27, NULL},
            {"Space", 32, " "},    {"PageUp", 33, NULL},     {"PageDown", 34, NULL},
            {"End", 35, NULL},     {"Home", 36, NULL},       {"ArrowLeft", 37, NULL},
            {"ArrowUp", 38, NULL}, {"ArrowRight", 39, NULL}, {"ArrowDown", 40, NULL},
            {"Delete", 46, NULL},  {"Backspace", 8, NULL},   {NULL, 0, NULL}};

static void press(browser *b, const char *name, int modifiers)
{
    const char *key = name, *text = name;
    int code = name[0], which = 0;
    while (keys[which].name && strcmp(keys[which].name, name) != 0)
        which++;
    if (keys[which].name) {
        code = keys[which].code;
        text = keys[which].text;
        key = code == 32 ? " " : name;
    } else if (strlen(name) != 1)
        fail("there is no key %s", name);
    else if (name[0] >= 'a' && name[0] <= 'z')
        code = name[0] - 32;
    for (int down = 1; down >= 0; down--) {
        json_t *params =
            json_pack("{ss ss si si}", "type",
                      !down  ? "keyUp"
                      : text ? "keyDown"
                             : "rawKeyDown",
                      "key", key, "windowsVirtualKeyCode", code, "modifiers", modifiers);
        json_object_set_new(params, "code", json_string(keys[which].name ? name : ""));
        if (down && text && !(modifiers & 2))
            json_object_set_new(params, "text", json_string(text));
        call_only(b, "Input.dispatchKeyEvent", params);
    }
}

static void do_key(browser *b, char *rest)
{
    char *times = strchr(rest, ' ');
    int num = times ? atoi(times + 1) : 1, modifiers = 0;
    if (times)
        *times = 0;
    for (char *plus; (plus = strchr(rest, '+')) && plus != rest; rest = plus + 1)
        modifiers |= rest[0] == 'A' ? 1 : rest[0] == 'C' ? 2 : 8;
    for (int i = 0; i < num; i++)
        press(b, rest, modifiers);
}

/* Where an element lies in the window: x, y, width, height. */
static void find_box(browser *b, const char *selector, double box[4])
{
    char why[1024], expression[4096];
    json_t *name = json_string(selector);
    char *quoted = json_dumps(name, JSON_ENCODE_ANY);
    snprintf(expression, sizeof expression,
             "(()=>{const e=document.querySelector(%s);if(!e)return null;"
             "const seen=e.getBoundingClientRect();"
             "if(seen.top<0||seen.bottom>innerHeight)e.scrollIntoView({block:'center'});"
             "const r=e.getBoundingClientRect();return [r.x,r.y,r.width,r.height]})()",
             quoted);
    free(quoted);
    json_decref(name);
    json_t *value = evaluate(b, expression, why);
    if (!json_is_array(value))
        fail("there is no element %s", selector);
    for (int i = 0; i < 4; i++)
        box[i] = json_number_value(json_array_get(value, (size_t)i));
    json_decref(value);
}

static void mouse(browser *b, const char *type, double x, double y, bool held)
{
    call_only(b, "Input.dispatchMouseEvent",
              json_pack("{ss sf sf ss si si}", "type", type, "x", x, "y", y, "button",
                        held ? "left" : "none", "buttons", held, "clickCount", held));
}

static void do_click(browser *b, const char *selector)
{
    double box[4];
    find_box(b, selector, box);
    double x = box[0] + box[2] / 2, y = box[1] + box[3] / 2;
    mouse(b, "mouseMoved", x, y, false);
    mouse(b, "mousePressed", x, y, true);
    mouse(b, "mouseReleased", x, y, true);
}

/* hover: two numbers behind the selector; drag: four. */
static void do_drag(browser *b, char *rest, int num)
{
    double box[4], at[4];
    for (int i = num - 1; i >= 0; i--) {
        char *blank = strrchr(rest, ' ');
        if (!blank)
            fail("%d numbers are missing behind %s", i + 1, rest);
        at[i] = strtod(blank + 1, NULL);
        *blank = 0;
    }
    find_box(b, rest, box);
    for (int i = 0; i < num; i++)
        at[i] = box[i % 2] + at[i] * box[2 + i % 2];
    mouse(b, "mouseMoved", at[0], at[1], false);
    if (num < 4)
        return;
    mouse(b, "mousePressed", at[0], at[1], true);
    for (int i = 1; i <= 8; i++)
        mouse(b, "mouseMoved", at[0] + (at[2] - at[0]) * i / 8, at[1] + (at[3] - at[1]) * i / 8,
              true);
    mouse(b, "mouseReleased", at[2], at[3], true);
}

static void do_size(browser *b, const char *rest)
{
    int width = 0, height = 0;
    double scale = 1;
    if (sscanf(rest, "%d %d %lf", &width, &height, &scale) < 2)
        fail("size WIDTH HEIGHT [SCALE] [phone]");
    b->phone = strstr(rest, "phone") != NULL;
    call_only(b, "Emulation.setDeviceMetricsOverride",
              json_pack("{si si sf sb}", "width", width, "height", height, "deviceScaleFactor",
                        scale, "mobile", b->phone));
    call_only(b, "Emulation.setTouchEmulationEnabled", json_pack("{sb}", "enabled", b->phone));
}

static void do_media(browser *b, const char *what)
{
    bool motion = strcmp(what, "still") == 0 || strcmp(what, "moving") == 0;
    const char *value = strcmp(what, "still") == 0    ? "reduce"
                        : strcmp(what, "moving") == 0 ? "no-preference"
                                                      : what;
    call_only(b, "Emulation.setEmulatedMedia",
              json_pack("{s[{ssss}]}", "features", "name",
                        motion ? "prefers-reduced-motion" : "prefers-color-scheme", "value",
                        value));
}

static size_t decode64(const char *text, unsigned char *out)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    unsigned bits = 0;
    int held = 0;
    size_t num = 0;
    for (; *text && *text != '='; text++) {
        bits = bits << 6 | (unsigned)(strchr(digits, *text) - digits);
        held += 6;
        if (held >= 8)
            out[num++] = (unsigned char)(bits >> (held -= 8));
    }
    return num;
}

static json_t *shot_params(browser *b, const char *what)
{
    json_t *params = json_pack("{ss}", "format", "png");
    if (!what)
        return params;
    double box[4];
    char why[1024];
    find_box(b, strcmp(what, "full") == 0 ? "html" : what, box);
    json_t *scroll = evaluate(b, "[scrollX, scrollY]", why);
    json_object_set_new(params, "clip",
                        json_pack("{sf sf sf sf sf}", "x",
                                  box[0] + json_number_value(json_array_get(scroll, 0)), "y",
                                  box[1] + json_number_value(json_array_get(scroll, 1)), "width",
                                  box[2], "height", box[3], "scale", 1.0));
    json_object_set_new(params, "captureBeyondViewport", json_true());
    json_decref(scroll);
    return params;
}

static void do_shot(browser *b, char *rest)
{
    char *what = strchr(rest, ' ');
    if (what)
        *what++ = 0;
    json_t *result = call(b, "Page.captureScreenshot", shot_params(b, what));
    const char *data = text_at(result, "data", NULL, NULL);
    unsigned char *bytes = malloc(strlen(data) + 4);
    size_t num = decode64(data, bytes);
    FILE *file = fopen(rest, "wb");
    if (!file || fwrite(bytes, 1, num, file) != num || fclose(file) != 0)
        fail("%s: cannot be written", rest);
    free(bytes);
    json_decref(result);
}

static void do_heap(browser *b)
{
    call_only(b, "HeapProfiler.collectGarbage", NULL);
    json_t *result = call(b, "Runtime.getHeapUsage", NULL);
    printf("%.0f\n", json_number_value(json_object_get(result, "usedSize")));
    json_decref(result);
}

static void print_texts(json_t *list)
{
    size_t at;
    json_t *text;
    json_array_foreach(list, at, text) printf("%s\n", json_string_value(text));
}

static void do_only(browser *b, const char *prefix)
{
    size_t at;
    json_t *text;
    call_only(b, "Runtime.getHeapUsage", NULL); /* events until now */
    json_array_foreach(b->urls, at,
                       text) if (strncmp(json_string_value(text), prefix, strlen(prefix)) != 0)
        fail("the page asked for %s", json_string_value(text));
    if (json_array_size(b->urls) == 0)
        fail("nothing was asked for, not even the page");
}

static void do_no_errors(browser *b)
{
    call_only(b, "Runtime.getHeapUsage", NULL); /* events until now */
    if (json_array_size(b->errors) > 0)
        fail("the console has errors");
}

static void do_command(browser *b, const char *word, char *rest)
{
    if (strcmp(word, "open") == 0)
        do_open(b, rest);
    else if (strcmp(word, "wait") == 0)
        do_wait(b, rest);
    else if (strcmp(word, "eval") == 0 || strcmp(word, "check") == 0)
        do_eval(b, rest, word[0] == 'c');
    else if (strcmp(word, "key") == 0)
        do_key(b, rest);
    else if (strcmp(word, "type") == 0)
        call_only(b, "Input.insertText", json_pack("{ss}", "text", rest));
    else if (strcmp(word, "click") == 0)
        do_click(b, rest);
    else if (strcmp(word, "drag") == 0 || strcmp(word, "hover") == 0)
        do_drag(b, rest, word[0] == 'd' ? 4 : 2);
    else if (strcmp(word, "size") == 0)
        do_size(b, rest);
    else if (strcmp(word, "media") == 0)
        do_media(b, rest);
    else if (strcmp(word, "shot") == 0)
        do_shot(b, rest);
    else if (strcmp(word, "heap") == 0)
        do_heap(b);
    else if (strcmp(word, "errors") == 0 || strcmp(word, "urls") == 0)
        print_texts(word[0] == 'e' ? b->errors : b->urls);
    else if (strcmp(word, "no-errors") == 0)
        do_no_errors(b);
    else if (strcmp(word, "only") == 0)
        do_only(b, rest);
    else if (strcmp(word, "say") == 0)
        printf("%s\n", rest);
    else
        fail("there is no command %s", word);
}

int main(int argc, char **argv)
{
    static char line[MOST_LINE];
    browser *b = &the_browser;
    start(b, argc > 1 ? argv[1] : "chromium");
    open_tab(b);
    while (fgets(line, sizeof line, stdin)) {
        line[strcspn(line, "\n")] = 0;
        char *word = line + strspn(line, " \t");
        if (!*word || *word == '#')
            continue;
        char *rest = word + strcspn(word, " ");
        if (*rest)
            *rest++ = 0;
        do_command(b, word, rest);
        fflush(stdout);
    }
    finish();
    free(b->bytes);
    free(b->session);
    json_decref(b->errors);
    json_decref(b->urls);
    return 0;
}
