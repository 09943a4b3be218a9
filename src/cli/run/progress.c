#include "cli/run/progress.h"
#include "base/clock.h"
#include "base/text.h"

#include <math.h>
#include <stdarg.h>
#include <string.h>
#include <time.h>

#include "cli/launch/launch.h"
#include "cli/text.h"

enum { MAX_LINE = 256 };

/* A rank writes into a pipe to the launcher, which may stand before a terminal. */
int tri_progress_columns(void)
{
    int columns;
    if (tri_cli_relayed_terminal(&columns))
        return columns;
    return tri_terminal(stdout) ? tri_terminal_width(stdout) : 0;
}

void tri_progress_init(tri_progress *progress, FILE *file, int64_t num_steps, int64_t log_every)
{
    *progress = (tri_progress){.file = file,
                               .num_steps = num_steps,
                               .log_every = log_every > 0 ? log_every : 1,
                               .terminal = tri_progress_columns() > 0,
                               .first_step = -1};
}

/* Time to the end, from the mean of the steps after the first reported one: the first holds the
 * page faults of every buffer. NAN until there are two. */
static double time_left_s(const tri_progress *p, int64_t step, double now)
{
    if (step <= p->first_step)
        return NAN;
    return (now - p->first_time_s) / (double)(step - p->first_step) * (double)(p->num_steps - step);
}

static void add(char *line, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void add(char *line, const char *format, ...)
{
    size_t used = strlen(line);
    va_list args;
    va_start(args, format);
    vsnprintf(line + used, MAX_LINE - used, format, args);
    va_end(args);
}

/* "tokens/s, MFU, time left", each with two blanks before it. */
static void add_speed(char *line, const tri_progress_step *s, double left_s)
{
    char text[16];
    if (s->tokens_per_s > 0)
        add(line, "  %s tokens/s", tri_text_count(s->tokens_per_s, text));
    if (s->mfu >= 0)
        add(line, "  MFU %.1f%%", 100 * s->mfu);
    if (!isnan(left_s))
        add(line, "  %s left", tri_text_duration(left_s, text));
}

/* Where the last item of a line begins: at the last two blanks, or at its end when there is one
 * item only. */
static char *last_item(char *line)
{
    char *last = line + strlen(line);
    for (char *at = strstr(line, "  "); at; at = strstr(at + 2, "  "))
        last = at;
    return last;
}

/* On a narrow terminal whole items go, from the right. */
static void fit(char *line, int width)
{
    while ((int)strlen(line) > width && *last_item(line))
        *last_item(line) = 0;
}

static void draw(tri_progress *p, const tri_progress_step *s, double left_s)
{
    enum { LEAST_BAR = 8, MOST_BAR = 30 };
    char head[MAX_LINE] = "", tail[MAX_LINE] = "", bar[MOST_BAR + 4] = "";
    int digits = snprintf(NULL, 0, "%lld", (long long)p->num_steps);
    add(head, "step %*lld/%lld", digits, (long long)s->step, (long long)p->num_steps);
    add(tail, "  loss %.4f", s->loss);
    add_speed(tail, s, left_s);
    /* One column stays free: a full last column makes some terminals wrap. */
    int width = tri_progress_columns() - 1;
    int room = width - (int)strlen(head) - (int)strlen(tail) - 3;
    if (room >= LEAST_BAR && p->num_steps > 0) {
        int length = room < MOST_BAR ? room : MOST_BAR;
        int full = (int)((double)length * (double)s->step / (double)p->num_steps);
        full = full > length ? length : full;
        bar[0] = ' ';
        bar[1] = '[';
        for (int i = 0; i < length; i++)
            bar[2 + i] = i < full ? '=' : i == full ? '>' : ' ';
        bar[2 + length] = ']';
    }
    char line[3 * MAX_LINE];
    snprintf(line, sizeof line, "%s%s%s", head, bar, tail);
    fit(line, width);
    /* Erase to the end of the line after writing, not before: that would flicker. */
    fprintf(p->file, "\r%.*s\033[K", width, line);
    fflush(p->file);
    p->drawn = true;
}

static void print_step(tri_progress *p, const tri_progress_step *s, double left_s)
{
    char line[MAX_LINE] = "";
    add(line, "step %lld/%lld  loss %.4f%s  grad %.3g  lr %.3g", (long long)s->step,
        (long long)p->num_steps, s->loss, s->stats, s->grad_norm, s->lr);
    add_speed(line, s, left_s);
    if (p->terminal)
        fit(line, tri_progress_columns() - 1);
    fprintf(p->file, "%s\n", line);
    fflush(p->file); /* whoever watches the pipe wants it now */
}

/* On a terminal, whether the line of a step stays: at 1, 2, 5, 10, 20, ... steps, and at every 20th
 * part of the run. */
static bool stays(int64_t step, int64_t first_step, int64_t num_steps)
{
    enum { LINES = 20 };
    int64_t done = step - first_step + 1, stride = (num_steps - first_step + LINES) / LINES;
    int64_t power = 1;
    while (done >= 10 * power)
        power *= 10;
    bool early = done == power || done == 2 * power || done == 5 * power;
    return early || step >= num_steps || (stride > 0 && step % stride == 0);
}

void tri_progress_update(tri_progress *p, const tri_progress_step *s)
{
    enum { LEAST_INTERVAL_MS = 100 };
    double now = tri_now_s();
    if (p->first_step < 0) {
        p->first_step = s->step;
        p->first_time_s = now;
    }
    bool last = s->step >= p->num_steps;
    double left_s = last ? NAN : time_left_s(p, s->step, now);
    if (p->terminal) {
        if (stays(s->step, p->first_step, p->num_steps)) {
            if (p->drawn)
                fputs("\r\033[K", p->file);
            p->drawn = false;
            print_step(p, s, left_s);
        }
        if (last)
            return;
        if (!p->drawn || now - p->drawn_time_s >= 1e-3 * LEAST_INTERVAL_MS) {
            draw(p, s, left_s);
            p->drawn_time_s = now;
        }
        return;
    }
    if (s->step % p->log_every != 0 && s->step != p->first_step && !last)
        return;
    print_step(p, s, left_s);
}

void tri_progress_note(tri_progress *p, const char *format, ...)
{
    va_list args;
    if (p->drawn)
        fputs("\r\033[K", p->file); /* the bar comes back with the next step */
    p->drawn = false;
    va_start(args, format);
    tri_text_vprint(p->file, format, args);
    va_end(args);
    fputc('\n', p->file);
    fflush(p->file);
}

void tri_progress_fini(tri_progress *p)
{
    if (p->drawn)
        fputc('\n', p->file);
    p->drawn = false;
    fflush(p->file);
}
