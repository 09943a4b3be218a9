#include "api/run_news.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool tri_run_news_take(const tri_run_news *news, tr_run_state *state, tr_run_moment *moment)
{
    static const tr_run_moment moments[] = {
        [TRI_RUN_BEGINS] = TR_RUN_BEGINS, [TRI_RUN_SKIPPED] = TR_RUN_SKIPPED,
        [TRI_RUN_STEP] = TR_RUN_STEP,     [TRI_RUN_EVALUATED] = TR_RUN_EVALUATED,
        [TRI_RUN_SAVED] = TR_RUN_SAVED,   [TRI_RUN_WARNING] = TR_RUN_WARNING,
        [TRI_RUN_ENDS] = TR_RUN_ENDS,
    };
    const tri_run *run = news->run;
    if (news->moment == TRI_RUN_UPDATED)
        return false;
    state->step = run->session->step;
    state->num_steps = run->num_steps;
    state->first_step = run->first_step;
    state->tokens = run->tokens;
    state->seconds = run->seconds;
    state->first_loss = run->first_loss;
    state->loss = run->last_loss;
    state->stopped = run->stopped;
    if (news->row) {
        state->grad_norm = news->row->grad_norm;
        state->lr = news->row->lr;
    }
    if (news->moment == TRI_RUN_EVALUATED)
        state->eval = (tr_eval){run->eval.loss, run->eval.accuracy};
    *moment = moments[news->moment];
    return true;
}

/* Numbers in hex, so that they arrive as they are. */
static void print(tri_text *line, const tr_run_news *news, bool failed)
{
    const tr_run_state *s = news->state;
    tri_text_add(
        line, "%d %d %d %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 " %a %a %a %a %a %a %a %d\t",
        (int)news->moment, (int)failed, (int)s->stopped, s->step, s->num_steps, s->first_step,
        s->tokens, s->seconds, s->first_loss, s->loss, s->grad_norm, s->lr, s->eval.loss,
        s->eval.accuracy, news->text != NULL);
    for (const char *c = news->text ? news->text : ""; *c; c++)
        tri_text_add(line, "%c", *c == '\n' ? ' ' : *c);
    tri_text_add(line, "\n");
}

bool tri_run_news_parse(char *line, tr_run_moment *moment, tr_run_state *state, bool *failed,
                        const char **text)
{
    enum { NUM = 15 };
    double number[NUM];
    char *at = line, *end;
    for (int i = 0; i < NUM; i++) { /* whole numbers of a run are below 2^53 */
        number[i] = strtod(at, &end);
        if (end == at)
            return false;
        at = end;
    }
    if (*at != '\t' || !(number[0] >= 0 && number[0] <= TR_RUN_ENDS))
        return false;
    *moment = (tr_run_moment)number[0];
    *failed = number[1] != 0;
    *state = (tr_run_state){.stopped = number[2] != 0,
                            .step = (int64_t)number[3],
                            .num_steps = (int64_t)number[4],
                            .first_step = (int64_t)number[5],
                            .tokens = (int64_t)number[6],
                            .seconds = number[7],
                            .first_loss = number[8],
                            .loss = number[9],
                            .grad_norm = number[10],
                            .lr = number[11],
                            .eval = {number[12], number[13]}};
    *text = number[14] != 0 ? at + 1 : NULL;
    return true;
}

/* A reader that is gone is no reason to fail. */
static void write_all(int fd, const char *bytes, size_t num)
{
    while (num > 0) {
        ssize_t written = write(fd, bytes, num);
        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0)
            return;
        bytes += written;
        num -= (size_t)written;
    }
}

static void observe(void *context, const tri_run_news *news)
{
    tri_run_news_writer *writer = context;
    tr_run_news told = {.state = &writer->state, .text = news->text};
    if (!tri_run_news_take(news, &writer->state, &told.moment))
        return;
    tri_text line;
    tri_text_init(&line);
    print(&line, &told, news->run->failed);
    if (!line.failed)
        write_all(writer->fd, line.chars, line.length);
    tri_text_fini(&line);
}

tri_observer tri_run_news_observer(tri_run_news_writer *writer, int fd)
{
    *writer = (tri_run_news_writer){.fd = fd, .state.eval = {NAN, NAN}};
    return (tri_observer){"news", observe, NULL, writer};
}
