/* What stays on a terminal when `trireme train` has gone over it: a pseudo-terminal of some width,
 * and as much of a terminal's behaviour as the program uses. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <pty.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/wait.h>

#include "temp_dir.h"

static char program[300], shim[320]; /* beside this test */

enum { MOST_LINES = 400, MOST_COLUMNS = 256 };

/* Rows from the first on; a row that is full goes on in the next. A character is a column. */
typedef struct screen {
    int width, row, column;
    int num_escapes, num_colours, num_wraps;
    char text[MOST_LINES][4 * MOST_COLUMNS];
    unsigned char size[MOST_LINES][MOST_COLUMNS]; /* bytes of each column */
} screen;

static void start_of(const screen *s, int row, int column, size_t *at)
{
    *at = 0;
    for (int i = 0; i < column; i++)
        *at += s->size[row][i];
}

static void put_character(screen *s, const char *bytes, size_t num)
{
    size_t at, end;
    if (s->column == s->width) {
        s->row++;
        s->column = 0;
        s->num_wraps++;
    }
    assert_true(s->row < MOST_LINES && s->column < MOST_COLUMNS);
    start_of(s, s->row, s->column, &at);
    end = strlen(s->text[s->row]);
    size_t old = s->size[s->row][s->column];
    memmove(s->text[s->row] + at + num, s->text[s->row] + at + old, end - at - old + 1);
    memcpy(s->text[s->row] + at, bytes, num);
    s->size[s->row][s->column++] = (unsigned char)num;
}

static void erase_rest(screen *s)
{
    size_t at;
    start_of(s, s->row, s->column, &at);
    s->text[s->row][at] = 0;
    memset(s->size[s->row] + s->column, 0, (size_t)(MOST_COLUMNS - s->column));
}

/* Returns the bytes of the sequence. */
static size_t obey(screen *s, const char *bytes)
{
    size_t num = 2 + strspn(bytes + 2, "0123456789;");
    char what = bytes[num];
    s->num_escapes++;
    if (what == 'm')
        s->num_colours++;
    else if (what == 'K')
        erase_rest(s);
    else
        fail_msg("the terminal is told %c", what);
    return num + 1;
}

static void show(screen *s, const char *bytes, const char *end)
{
    while (bytes < end) {
        unsigned char c = (unsigned char)*bytes;
        size_t num = c < 0x80 ? 1 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;
        if (c == '\r') {
            s->column = 0;
        } else if (c == '\n') {
            s->row++;
            assert_true(s->row < MOST_LINES);
        } else if (c == 0x1b) {
            num = obey(s, bytes);
        } else {
            put_character(s, bytes, num);
        }
        bytes += num;
    }
}

typedef struct command {
    const char *term, *no_color, *locale; /* NULL: xterm; none; UTF-8 */
    const char *quiet;
    const char *steps;
    const char *hold; /* the run stands at this step until the file is there, or NULL */
    int narrows_to;   /* columns, while it stands */
} command;

static void run_child(const char *dir, const char *go, const command *c)
{
    char run[320], steps[40];
    snprintf(run, sizeof run, "run.dir=%s", dir);
    snprintf(steps, sizeof steps, "train.steps=%s", c->steps ? c->steps : "40");
    setenv("TERM", c->term ? c->term : "xterm", 1);
    setenv("LC_ALL", c->locale ? c->locale : "C.UTF-8", 1);
    unsetenv("COLUMNS");
    unsetenv("NO_COLOR");
    if (c->no_color)
        setenv("NO_COLOR", c->no_color, 1);
    if (c->hold) {
        setenv("LD_PRELOAD", shim, 1);
        setenv("ASAN_OPTIONS", "verify_asan_link_order=0", 1); /* the shim comes before it */
        setenv("HOLD_STEP", c->hold, 1);
        setenv("HOLD_UNTIL", go, 1);
    }
    execl(program, "trireme", "train", "recipes/tiny.yaml", "--set", "model.dim=16", "--set",
          "model.num_layers=1", "--set", "data.seq_len=16", "--set", "run.save=false", "--set",
          "run.threads=1", "--set", run, "--set", steps, c->quiet, (char *)NULL);
    _exit(127);
}

/* All that the command writes; when it stands at a step, the terminal becomes narrower. Returns the
 * bytes up to there. */
static size_t read_all(int fd, const command *c, const char *marker, const char *go, char *all,
                       size_t room, size_t *num)
{
    size_t before = 0;
    *num = 0;
    for (;;) {
        ssize_t n = read(fd, all + *num, room - *num - 1);
        if (n <= 0)
            break; /* EIO: nobody is at the other end */
        *num += (size_t)n;
        all[*num] = 0;
        assert_true(*num + 1 < room);
        char *found = c->hold && before == 0 ? strstr(all, marker) : NULL;
        if (!found || !strstr(found, "\033[K")) /* the bar behind it */
            continue;
        struct winsize size = {.ws_row = 50, .ws_col = (unsigned short)c->narrows_to};
        assert_int_equal(ioctl(fd, TIOCSWINSZ, &size), 0);
        before = *num;
        assert_int_equal(put_file(go, "", 0), 0);
    }
    return before;
}

static screen *run(temp_dir *dir, int width, const command *c)
{
    static int number;
    static char all[1 << 18];
    struct winsize size = {.ws_row = 50, .ws_col = (unsigned short)width};
    char name[32], path[300], go[300], marker[64];
    int fd, status;
    size_t num;
    snprintf(name, sizeof name, "run-%d", number++);
    snprintf(path, sizeof path, "%s", temp_file(dir, name));
    snprintf(go, sizeof go, "%s.go", path);
    snprintf(marker, sizeof marker, "step %s/40  ", c->hold ? c->hold : "");
    pid_t pid = forkpty(&fd, NULL, NULL, &size);
    assert_true(pid >= 0);
    if (pid == 0)
        run_child(path, go, c);
    size_t before = read_all(fd, c, marker, go, all, sizeof all, &num);
    close(fd);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        fail_msg("train ended with %d: %s", status, all);
    screen *s = calloc(1, sizeof *s);
    assert_non_null(s);
    s->width = width;
    show(s, all, all + before);
    if (c->hold) /* a terminal that cuts what it has no room for */
        s->width = c->narrows_to;
    if (s->column > s->width)
        s->column = s->width;
    show(s, all + before, all + num);
    return s;
}

static int count(const screen *s, const char *part)
{
    int num = 0;
    for (int row = 0; row <= s->row; row++)
        num += strstr(s->text[row], part) != NULL;
    return num;
}

static int count_begin(const screen *s, const char *begin)
{
    int num = 0;
    for (int row = 0; row <= s->row; row++)
        num += strncmp(s->text[row], begin, strlen(begin)) == 0;
    return num;
}

/* Behind the last item of a step's line stands nothing of the bar that was there before. */
static void check_end(const char *line)
{
    const char *item = strstr(line, "  MFU ");
    double share;
    char time[16];
    int end = 0;
    if (!item)
        return;
    assert_int_equal(sscanf(item, "  MFU %lf%%%n", &share, &end), 1);
    assert_true(end > 0);
    if (!item[end])
        return;
    item += end;
    end = 0;
    assert_int_equal(sscanf(item, "  %15s left%n", time, &end), 1);
    assert_true(strncmp(item, "  ", 2) == 0 && end > 0 && !item[end]);
}

/* Each of them once, and no bar any more. */
static void check_steps(const screen *s)
{
    static const char *const lines[] = {"step 1/40  ",  "step 2/40  ",  "step 5/40  ",
                                        "step 10/40  ", "step 20/40  ", "step 40/40  "};
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        assert_int_equal(count_begin(s, lines[i]), 1);
    for (int row = 0; row <= s->row; row++)
        if (strncmp(s->text[row], "step ", 5) == 0)
            check_end(s->text[row]);
    assert_int_equal(count(s, "=>"), 0);
    assert_int_equal(count(s, "[>"), 0);
}

#define TICK "┤"

static void widths(void **state)
{
    static const int widths[] = {40, 80, 200};
    for (int i = 0; i < 3; i++) {
        screen *s = run(*state, widths[i], &(command){0});
        check_steps(s);
        assert_int_equal(count(s, "  MFU ") > 0, widths[i] > 40); /* what has no room is left out */
        assert_int_equal(count(s, TICK) > 1, widths[i] >= 60);    /* the curve */
        assert_int_equal(count_begin(s, "loss  "), widths[i] >= 60);
        assert_int_equal(count(s, "40 steps in "), 1);
        assert_int_equal(s->num_colours, 0); /* one curve needs none */
        if (widths[i] == 200)
            assert_int_equal(s->num_wraps, 0);
        free(s);
    }
}

static void plain_terminals(void **state)
{
    screen *s = run(*state, 80, &(command){.no_color = "1"});
    check_steps(s);
    assert_int_equal(s->num_colours, 0);
    assert_true(count(s, TICK) > 1);
    free(s);
    s = run(*state, 80, &(command){.locale = "C"});
    check_steps(s);
    assert_int_equal(count(s, TICK), 0);
    free(s);
    s = run(*state, 80, &(command){.term = "dumb"}); /* as in a pipe */
    assert_int_equal(s->num_escapes, 0);
    assert_int_equal(count_begin(s, "step 10/40  "), 1);
    assert_int_equal(count(s, TICK), 0);
    free(s);
}

static void few_steps_and_quiet(void **state)
{
    screen *s = run(*state, 80, &(command){.steps = "19"});
    assert_int_equal(count(s, TICK), 0);
    assert_int_equal(count_begin(s, "step 19/19  "), 1);
    free(s);
    s = run(*state, 80, &(command){.quiet = "--quiet"});
    assert_int_equal(s->num_escapes, 0);
    assert_int_equal(s->row, 1);
    assert_int_equal(count_begin(s, "40 steps in "), 1);
    free(s);
}

/* Of the bar that the narrower terminal cut, nothing stays, and no later one is too long. */
static void a_terminal_that_becomes_narrow(void **state)
{
    screen *s = run(*state, 100, &(command){.hold = "10", .narrows_to = 62});
    check_steps(s);
    for (int row = 0; row <= s->row; row++)
        if (strncmp(s->text[row], "step 20/", 8) == 0 || strncmp(s->text[row], "step 40/", 8) == 0)
            assert_true(strlen(s->text[row]) < 62);
    assert_true(count(s, TICK) > 1);
    free(s);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(widths),
        cmocka_unit_test(plain_terminals),
        cmocka_unit_test(few_steps_and_quiet),
        cmocka_unit_test(a_terminal_that_becomes_narrow),
    };
    (void)argc;
    char *here = realpath(argv[0], NULL), *slash = here ? strrchr(here, '/') : NULL;
    if (!slash)
        return 1;
    *slash = 0;
    snprintf(program, sizeof program, "%s/../trireme", here);
    snprintf(shim, sizeof shim, "%s/helpers/libhold-shim.so", here);
    free(here);
    return cmocka_run_group_tests(tests, temp_dir_setup, temp_dir_teardown);
}
