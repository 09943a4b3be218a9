/* Two readings of the file: one to learn when the last rank began each message, one to add up. */
#include "run/trace/profile.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "graph/op_table.h"

enum { MOST_FOR_WHOM = 1024 }; /* ranks among which it is counted who waits for whom */

/* When the last rank that takes part began a message. */
typedef struct last_begin {
    int64_t message; /* 0: an empty place */
    int64_t begin_ns;
    int rank;
} last_begin;

typedef struct begin_table {
    last_begin *places;
    size_t num, capacity; /* a power of two */
} begin_table;

typedef struct time_span {
    int64_t begin, end;
} time_span;

typedef struct span_list {
    time_span *spans;
    size_t num, capacity;
} span_list;

/* A message beside the computation of the rank that is read. */
typedef struct travelling {
    time_span span, transfer; /* from its begin, from that of the last rank */
    size_t axis;
} travelling;

typedef struct profiling {
    tri_profile *profile;
    begin_table begins;
    double *for_whom; /* [ranks * ranks] seconds; NULL: there are too many */
    int rank;         /* that is read, or -1 */
    span_list work;   /* what it computed */
    span_list waits;  /* for messages beside it */
    travelling *messages;
    size_t num_messages, messages_capacity;
} profiling;

static tr_status no_memory(tr_error *err)
{
    return tri_fail(err, TR_ERROR_RUNTIME, "no memory for the profile");
}

static bool counts(const tri_profile *p, const tri_trace_line *line)
{
    return line->step >= p->first_step && line->step < p->first_step + p->num_steps;
}

static bool is_message(const tri_trace_line *line)
{
    return line->group[0] && strcmp(line->category, "wait") != 0;
}

/* ---- who began last ---- */

static last_begin *place_of(const begin_table *table, int64_t message)
{
    size_t at = (size_t)((uint64_t)message * 0x9e3779b97f4a7c15u) & (table->capacity - 1);
    while (table->places[at].message != 0 && table->places[at].message != message)
        at = (at + 1) & (table->capacity - 1);
    return &table->places[at];
}

static bool grow(begin_table *table)
{
    begin_table larger = {.num = table->num,
                          .capacity = table->capacity ? 2 * table->capacity : 4096};
    larger.places = calloc(larger.capacity, sizeof *larger.places);
    if (!larger.places)
        return false;
    for (size_t i = 0; i < table->capacity; i++)
        if (table->places[i].message != 0)
            *place_of(&larger, table->places[i].message) = table->places[i];
    free(table->places);
    *table = larger;
    return true;
}

static void choose_steps(tri_profile *p)
{
    bool warms_up = p->head.num_steps > 1;
    p->first_step = p->head.first_step + warms_up;
    p->num_steps = p->head.num_steps - warms_up;
}

static tr_status note_begin(void *context, const tri_trace_line *line, tr_error *err)
{
    profiling *s = context;
    choose_steps(s->profile);
    if (line->message <= 0 || !is_message(line) || !counts(s->profile, line))
        return TR_OK;
    if (2 * s->begins.num >= s->begins.capacity && !grow(&s->begins))
        return no_memory(err);
    last_begin *place = place_of(&s->begins, line->message);
    s->begins.num += place->message == 0;
    if (place->message == 0 || line->start_ns > place->begin_ns)
        *place = (last_begin){line->message, line->start_ns, line->rank};
    return TR_OK;
}

/* Of [start, end], the part before the last rank began the message, where that is another one. */
static int64_t late_ns(profiling *s, const tri_trace_line *line, int *whom)
{
    *whom = -1;
    if (line->message <= 0 || s->begins.capacity == 0)
        return 0;
    const last_begin *last = place_of(&s->begins, line->message);
    if (last->message == 0 || last->rank == line->rank || last->begin_ns <= line->start_ns)
        return 0;
    int64_t late = last->begin_ns - line->start_ns;
    *whom = last->rank;
    return late < line->duration_ns ? late : line->duration_ns;
}

/* ---- adding up ---- */

static tri_profile_op *op_of(tri_profile *p, const char *name)
{
    for (size_t i = 0; i < p->num_ops; i++)
        if (strcmp(p->ops[i].name, name) == 0)
            return &p->ops[i];
    if (p->num_ops == TRI_PROFILE_MOST_OPS)
        return &p->ops[TRI_PROFILE_MOST_OPS - 1];
    snprintf(p->ops[p->num_ops].name, sizeof p->ops[0].name, "%s", name);
    return &p->ops[p->num_ops++];
}

static size_t axis_of(tri_profile *p, const tri_trace_line *line)
{
    for (size_t i = 0; i < p->num_axes; i++)
        if (strcmp(p->axes[i].name, line->group) == 0 &&
            strcmp(p->axes[i].operation, line->category) == 0)
            return i;
    if (p->num_axes == TRI_PROFILE_MOST_AXES)
        return TRI_PROFILE_MOST_AXES - 1;
    tri_profile_axis *axis = &p->axes[p->num_axes];
    snprintf(axis->name, sizeof axis->name, "%s", line->group);
    snprintf(axis->operation, sizeof axis->operation, "%s", line->category);
    return p->num_axes++;
}

/* The least time that it could take, as `trireme bench` has it: only products and attention run at
 * the rate of products. */
static double limit_of(const tri_trace_peaks *peaks, const tri_trace_line *line)
{
    static const tri_op products[] = {TRI_OP_MATMUL, TRI_OP_ATTENTION, TRI_OP_ATTENTION_GRAD};
    double peak = line->float8 ? peaks->flops8 : peaks->flops, limit = 0;
    if (peaks->bytes > 0 && line->bytes > 0)
        limit = line->bytes / peaks->bytes;
    for (int i = 0; i < 3 && peak > 0 && line->flops > 0; i++)
        if (strcmp(tri_op_get(products[i])->name, line->category) == 0)
            limit = fmax(limit, line->flops / peak);
    return limit;
}

static bool add_span(span_list *list, time_span span)
{
    if (list->num == list->capacity) {
        size_t capacity = 2 * list->capacity + 1024;
        time_span *more = realloc(list->spans, capacity * sizeof *more);
        if (!more)
            return false;
        list->spans = more;
        list->capacity = capacity;
    }
    list->spans[list->num++] = span;
    return true;
}

static bool add_travelling(profiling *s, time_span span, int64_t late, size_t axis)
{
    if (s->num_messages == s->messages_capacity) {
        size_t capacity = 2 * s->messages_capacity + 256;
        travelling *more = realloc(s->messages, capacity * sizeof *more);
        if (!more)
            return false;
        s->messages = more;
        s->messages_capacity = capacity;
    }
    s->messages[s->num_messages++] = (travelling){span, {span.begin + late, span.end}, axis};
    return true;
}

static void add_wait(profiling *s, int rank, int whom, int64_t ns)
{
    if (s->for_whom && whom >= 0)
        s->for_whom[(size_t)rank * (size_t)s->profile->head.num_ranks + (size_t)whom] +=
            (double)ns * 1e-9;
}

static tr_status add_message(profiling *s, const tri_trace_line *line, tr_error *err)
{
    tri_profile *p = s->profile;
    tri_profile_rank *rank = &p->ranks[line->rank];
    size_t a = axis_of(p, line);
    int whom;
    int64_t late = late_ns(s, line, &whom);
    p->axes[a].calls++;
    p->axes[a].bytes += fmax(line->bytes, 0);
    p->axes[a].seconds += (double)line->duration_ns * 1e-9;
    p->axes[a].late_s += (double)late * 1e-9;
    if (line->lane != TRI_TRACE_COMPUTE) {
        time_span span = {line->start_ns, line->start_ns + line->duration_ns};
        return add_travelling(s, span, late, a) ? TR_OK : no_memory(err);
    }
    rank->wait_s += (double)late * 1e-9;
    rank->message_s += (double)(line->duration_ns - late) * 1e-9;
    p->axes[a].exposed_s += (double)(line->duration_ns - late) * 1e-9;
    add_wait(s, line->rank, whom, late);
    return TR_OK;
}

static tr_status add_work(profiling *s, const tri_trace_line *line, tr_error *err)
{
    double seconds = (double)line->duration_ns * 1e-9;
    tri_profile_op *op = op_of(s->profile, line->category);
    s->profile->ranks[line->rank].compute_s += seconds;
    op->calls++;
    op->seconds += seconds;
    op->flops += fmax(line->flops, 0);
    op->bytes += fmax(line->bytes, 0);
    op->limit_s += limit_of(&s->profile->head.peaks, line);
    time_span span = {line->start_ns, line->start_ns + line->duration_ns};
    return add_span(&s->work, span) ? TR_OK : no_memory(err);
}

static int by_begin(const void *a, const void *b)
{
    const time_span *x = a, *y = b;
    return x->begin < y->begin ? -1 : x->begin > y->begin;
}

static int64_t ns_under(const time_span *message, const span_list *work)
{
    int64_t under = 0;
    size_t low = 0, high = work->num; /* the first that ends after the message begins */
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (work->spans[middle].end <= message->begin)
            low = middle + 1;
        else
            high = middle;
    }
    for (size_t i = low; i < work->num && work->spans[i].begin < message->end; i++) {
        const time_span *w = &work->spans[i];
        int64_t begin = w->begin > message->begin ? w->begin : message->begin;
        int64_t end = w->end < message->end ? w->end : message->end;
        under += end > begin ? end - begin : 0;
    }
    return under;
}

/* All of a rank has been read: how much of its messages lay under what it computed. */
static void end_rank(profiling *s)
{
    if (s->work.num > 0)
        qsort(s->work.spans, s->work.num, sizeof *s->work.spans, by_begin);
    if (s->waits.num > 0)
        qsort(s->waits.spans, s->waits.num, sizeof *s->waits.spans, by_begin);
    for (size_t i = 0; i < s->num_messages; i++) {
        tri_profile_axis *axis = &s->profile->axes[s->messages[i].axis];
        axis->hidden_s += (double)ns_under(&s->messages[i].span, &s->work) * 1e-9;
        axis->exposed_s += (double)ns_under(&s->messages[i].transfer, &s->waits) * 1e-9;
    }
    s->work.num = s->waits.num = s->num_messages = 0;
}

static tr_status add_line(void *context, const tri_trace_line *line, tr_error *err)
{
    profiling *s = context;
    tri_profile *p = s->profile;
    if (line->rank != s->rank)
        end_rank(s);
    s->rank = line->rank;
    if (strcmp(line->category, "row") == 0 || !counts(p, line))
        return TR_OK;
    tri_profile_rank *rank = &p->ranks[line->rank];
    if (line->lane == TRI_TRACE_STEPS) {
        rank->present = true;
        rank->step_s += (double)line->duration_ns * 1e-9;
    } else if (line->lane == TRI_TRACE_ACTIONS) {
        return TR_OK;
    } else if (strcmp(line->category, "wait") == 0) {
        int whom;
        int64_t late = late_ns(s, line, &whom);
        rank->wait_s += (double)line->duration_ns * 1e-9;
        add_wait(s, line->rank, whom, late);
        time_span span = {line->start_ns, line->start_ns + line->duration_ns};
        return add_span(&s->waits, span) ? TR_OK : no_memory(err);
    } else if (line->group[0]) {
        return add_message(s, line, err);
    } else {
        return add_work(s, line, err);
    }
    return TR_OK;
}

/* ---- the end ---- */

static int by_seconds(const void *a, const void *b)
{
    const tri_profile_op *x = a, *y = b;
    return x->seconds > y->seconds ? -1 : x->seconds < y->seconds;
}

static int by_axis(const void *a, const void *b)
{
    const tri_profile_axis *x = a, *y = b;
    int order = strcmp(x->name, y->name);
    return order ? order : strcmp(x->operation, y->operation);
}

static void settle_rank(profiling *s, int r)
{
    tri_profile *p = s->profile;
    tri_profile_rank *rank = &p->ranks[r];
    double steps = (double)p->num_steps;
    rank->step_s /= steps;
    rank->compute_s /= steps;
    rank->message_s /= steps;
    rank->wait_s /= steps;
    rank->idle_s = fmax(0, rank->step_s - rank->compute_s - rank->message_s - rank->wait_s);
    rank->waits_for = -1;
    for (int other = 0; s->for_whom && other < p->head.num_ranks; other++) {
        double seconds = s->for_whom[(size_t)r * (size_t)p->head.num_ranks + (size_t)other] / steps;
        if (seconds <= rank->waits_for_s)
            continue;
        rank->waits_for = other;
        rank->waits_for_s = seconds;
    }
    p->num_present += rank->present;
}

static tr_status add_up(profiling *s, const char *path, tr_error *err)
{
    tri_profile *p = s->profile;
    size_t num = (size_t)p->head.num_ranks;
    if (p->num_steps < 1)
        return tri_fail(err, TR_ERROR_INPUT,
                        "%s has no whole step; train again with --set run.trace=true", path);
    p->ranks = calloc(num, sizeof *p->ranks);
    s->for_whom = num <= MOST_FOR_WHOM ? calloc(num * num, sizeof *s->for_whom) : NULL;
    if (!p->ranks || (num <= MOST_FOR_WHOM && !s->for_whom))
        return no_memory(err);
    TRI_TRY(tri_trace_read(path, &p->head, add_line, s, err));
    end_rank(s);
    for (int r = 0; r < p->head.num_ranks; r++)
        settle_rank(s, r);
    if (p->num_present == 0)
        return tri_fail(err, TR_ERROR_INPUT, "%s has no whole step of any rank", path);
    qsort(p->ops, p->num_ops, sizeof *p->ops, by_seconds);
    qsort(p->axes, p->num_axes, sizeof *p->axes, by_axis);
    return TR_OK;
}

tr_status tri_profile_read(tri_profile *p, const char *path, tr_error *err)
{
    profiling s = {.profile = p, .rank = -1};
    *p = (tri_profile){0};
    tr_status status = tri_trace_read(path, &p->head, note_begin, &s, err);
    if (status == TR_OK) {
        choose_steps(p);
        status = add_up(&s, path, err);
    }
    free(s.begins.places);
    free(s.for_whom);
    free(s.work.spans);
    free(s.waits.spans);
    free(s.messages);
    if (status != TR_OK)
        tri_profile_free(p);
    return status;
}

void tri_profile_free(tri_profile *p)
{
    free(p->ranks);
    *p = (tri_profile){0};
}
