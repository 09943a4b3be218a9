/* What a run tells a program: as a state, and as a line from one process to another.
 *
 * Lines go from rank 0 to the program that started it (trireme train --news FD). Both are of the
 * same version, which the first line says, so the format is nobody else's. */
#ifndef TRI_API_RUN_NEWS_H
#define TRI_API_RUN_NEWS_H

#include "base/text.h"
#include "train/run/run.h"
#include "trireme/run.h"
#include "trireme/version.h"

/* Of rank 0: where the run is now, and the moment. False: it is none that programs are told of. */
bool tri_run_news_take(const tri_run_news *news, tr_run_state *state, tr_run_moment *moment);

#define TRI_RUN_NEWS_HELLO "trireme-news " TRIREME_VERSION "\n"

/* A line without its newline, as the observer below writes it; text points into it. False: it is
 * none. failed: the run ends by an error, which text is. */
bool tri_run_news_parse(char *line, tr_run_moment *moment, tr_run_state *state, bool *failed,
                        const char **text);

/* For rank 0: an observer that writes lines to a descriptor, beginning with the hello. It waits for
 * the reader, as a callback of the same process would. */
typedef struct tri_run_news_writer {
    int fd;
    tr_run_state state;
} tri_run_news_writer;
tri_observer tri_run_news_observer(tri_run_news_writer *writer, int fd);

#endif
