#include "run/trace/trace_line.h"

#include <math.h>
#include <string.h>

/* What a line may have; a member of another name is read and left. */
typedef struct line_parts {
    char *phase, *name, *category, *group, *row; /* NULL: none */
    int64_t rank, lane;
    int64_t start_ns, duration_ns;
    bool has_start, has_duration;
    tri_trace_line line;
} line_parts;

typedef struct line_number {
    double value;      /* -1: it is null */
    int64_t whole;     /* -1: it is not one */
    int64_t thousands; /* of it, times 1,000: microseconds as nanoseconds */
} line_number;

static bool take(char **at, char c)
{
    if (**at != c)
        return false;
    ++*at;
    return true;
}

static int hex_of(char c)
{
    const char *digits = "0123456789abcdef", *found = c ? strchr(digits, c) : NULL;
    return found ? (int)(found - digits) : -1;
}

/* Control characters are the only ones that are written by number. */
static bool take_escape(char **from, char *to)
{
    char c = *(*from)++;
    if (c == '"' || c == '\\') {
        *to = c;
        return true;
    }
    if (c != 'u' || strncmp(*from, "00", 2) != 0 || hex_of((*from)[2]) < 0 ||
        hex_of((*from)[2]) > 1 || hex_of((*from)[3]) < 0)
        return false;
    *to = (char)(16 * hex_of((*from)[2]) + hex_of((*from)[3]));
    *from += 4;
    return *to != 0;
}

static bool take_text(char **at, char **text)
{
    char *from = *at, *to;
    if (!take(&from, '"'))
        return false;
    *text = to = from;
    while (*from && *from != '"') {
        char c = *from++;
        if (c == '\\' && !take_escape(&from, &c))
            return false;
        *to++ = c;
    }
    if (*from != '"')
        return false;
    *at = from + 1;
    *to = 0;
    return true;
}

static bool take_number(char **at, line_number *number)
{
    enum { MOST_DIGITS = 15 }; /* before the point; with three behind it they fit an int64_t */
    char *c = *at;
    bool minus = take(&c, '-'), plain = true;
    int64_t whole = 0, decimals = 0;
    double value = 0, scale = 1;
    int num = 0, num_decimals = 0, exponent = 0;
    for (; *c >= '0' && *c <= '9'; c++, num++) {
        value = 10 * value + (*c - '0');
        whole = num < MOST_DIGITS + 3 ? 10 * whole + (*c - '0') : 0;
    }
    if (num == 0 || num > MOST_DIGITS + 3)
        return false;
    if (take(&c, '.')) {
        for (plain = false; *c >= '0' && *c <= '9'; c++, num_decimals++) {
            value += (*c - '0') * (scale /= 10);
            decimals = num_decimals < 3 ? 10 * decimals + (*c - '0') : decimals;
        }
        for (int i = num_decimals; i < 3; i++)
            decimals *= 10;
    }
    if (take(&c, 'e')) {
        bool down = take(&c, '-'), up = !down && take(&c, '+');
        (void)up; /* 1e5 and 1e+5 are the same */
        plain = false;
        for (; *c >= '0' && *c <= '9' && exponent < 400; c++)
            exponent = 10 * exponent + (*c - '0');
        value *= pow(10, down ? -exponent : exponent);
    }
    *number = (line_number){.value = minus ? -value : value,
                            .whole = plain && !minus ? whole : -1,
                            .thousands = num <= MOST_DIGITS ? 1000 * whole + decimals : INT64_MAX};
    if (minus)
        number->thousands = -number->thousands;
    *at = c;
    return true;
}

/* A number or null. */
static bool take_value(char **at, line_number *number)
{
    if (strncmp(*at, "null", 4) != 0)
        return take_number(at, number);
    *number = (line_number){.value = -1, .whole = -1, .thousands = 0};
    *at += 4;
    return true;
}

static void keep_text(line_parts *p, const char *key, char *text, bool inner)
{
    if (inner && strcmp(key, "group") == 0)
        p->group = text;
    else if (inner && strcmp(key, "name") == 0)
        p->row = text;
    else if (!inner && strcmp(key, "ph") == 0)
        p->phase = text;
    else if (!inner && strcmp(key, "name") == 0)
        p->name = text;
    else if (!inner && strcmp(key, "cat") == 0)
        p->category = text;
}

static void keep_outer(line_parts *p, const char *key, const line_number *n)
{
    const int64_t most = (int64_t)1 << 60;
    bool in_range = n->thousands > -most && n->thousands < most;
    if (strcmp(key, "pid") == 0)
        p->rank = n->whole;
    else if (strcmp(key, "tid") == 0)
        p->lane = n->whole;
    else if (strcmp(key, "ts") == 0) {
        p->start_ns = n->thousands;
        p->has_start = in_range;
    } else if (strcmp(key, "dur") == 0) {
        p->duration_ns = n->thousands;
        p->has_duration = in_range && n->thousands >= 0;
    }
}

static void keep_inner(line_parts *p, const char *key, const line_number *n)
{
    tri_trace_line *line = &p->line;
    const struct {
        const char *key;
        int64_t *to;
    } wholes[] = {{"step", &line->step},
                  {"instruction", &line->instruction},
                  {"microbatch", &line->microbatch},
                  {"chunk", &line->chunk},
                  {"peer", &line->peer},
                  {"waited_for_at", &line->awaited},
                  {"message", &line->message}};
    for (size_t i = 0; i < sizeof wholes / sizeof *wholes; i++)
        if (strcmp(key, wholes[i].key) == 0)
            *wholes[i].to = n->whole;
    if (strcmp(key, "flops") == 0)
        line->flops = n->value;
    else if (strcmp(key, "bytes") == 0)
        line->bytes = n->value;
    else if (strcmp(key, "float8") == 0)
        line->float8 = n->whole == 1;
}

/* An object without others in it. */
static bool take_inner(char **at, line_parts *p)
{
    if (!take(at, '{'))
        return false;
    if (take(at, '}'))
        return true;
    do {
        char *key, *text;
        line_number number;
        if (!take_text(at, &key) || !take(at, ':'))
            return false;
        if (**at == '"') {
            if (!take_text(at, &text))
                return false;
            keep_text(p, key, text, true);
        } else {
            if (!take_value(at, &number))
                return false;
            keep_inner(p, key, &number);
        }
    } while (take(at, ','));
    return take(at, '}');
}

static bool take_outer(char **at, line_parts *p)
{
    if (!take(at, '{'))
        return false;
    do {
        char *key, *text;
        line_number number;
        if (!take_text(at, &key) || !take(at, ':'))
            return false;
        if (**at == '{') {
            if (!take_inner(at, p))
                return false;
        } else if (**at == '"') {
            if (!take_text(at, &text))
                return false;
            keep_text(p, key, text, false);
        } else {
            if (!take_value(at, &number))
                return false;
            keep_outer(p, key, &number);
        }
    } while (take(at, ','));
    return take(at, '}') && !**at;
}

static const char *or_nothing(const char *text)
{
    return text ? text : "";
}

bool tri_trace_line_parse(char *text, int num_ranks, tri_trace_line *line, bool *told)
{
    line_parts p = {.rank = -1,
                    .lane = -1,
                    .line = {.step = -1,
                             .instruction = -1,
                             .microbatch = -1,
                             .chunk = -1,
                             .peer = -1,
                             .awaited = -1,
                             .message = -1,
                             .flops = -1,
                             .bytes = -1}};
    char *at = text;
    *told = false;
    if (!take_outer(&at, &p) || !p.phase || p.rank < 0 || p.rank >= num_ranks || p.lane < 0 ||
        p.lane >= TRI_TRACE_MAX_LANES)
        return false;
    bool row = strcmp(p.phase, "M") == 0 && strcmp(or_nothing(p.name), "thread_name") == 0;
    bool event = strcmp(p.phase, "X") == 0;
    *line = p.line;
    line->rank = (int)p.rank;
    line->lane = (int)p.lane;
    line->name = or_nothing(row ? p.row : p.name);
    line->category = row ? "row" : or_nothing(p.category);
    line->group = or_nothing(p.group);
    line->start_ns = p.start_ns;
    line->duration_ns = p.duration_ns;
    *told = row || event;
    return !event || (p.has_start && p.has_duration);
}
