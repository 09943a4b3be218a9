/* One lock for all of it; what is done under it is short, and waits for nobody.
 *
 *   1. A client is suspended (sleeps) only when it has nothing to read, decided under the lock;
 *      whoever adds something takes the mark away under the lock, and resumes it after that: each
 *      suspension is resumed once.
 *   2. Connections are resumed without the lock. One that is suspended cannot end meanwhile. */
#include "serve/http/feed_parts.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "comm/control/auth.h"

typedef struct feed_event {
    uint32_t topic;
    char *text;
    size_t length;
} feed_event;

typedef struct feed_client {
    struct feed_client *next;
    tri_http_feed *feed;
    struct MHD_Connection *connection;
    uint32_t topics[TRI_HTTP_MAX_TOPICS];
    size_t num_topics;
    uint64_t at;       /* the event that is read next */
    size_t offset;     /* in it */
    const char *hello; /* to be sent before it, or NULL */
    bool beat, sleeps;
} feed_client;

struct tri_http_feed {
    pthread_mutex_t lock;
    tri_http_feed_config config;
    feed_event *ring; /* event n is at n % max_events */
    uint64_t first, next;
    size_t bytes;
    feed_client *clients;
    int num_clients;
    bool closed;
    char epoch[9]; /* a client may come back to another server */
};

enum { BLOCK_BYTES = 16 << 10 };

/* Three seconds until a client comes back; and that something it may have missed is gone. */
static const char hello[] = "retry: 3000\n\n";
static const char hello_gap[] = "retry: 3000\n\nevent: gap\ndata: {}\n\n";
static const char beat[] = ":\n\n";

tr_status tri_http_feed_create(const tri_http_feed_config *config, tri_http_feed **feed,
                               tr_error *err)
{
    unsigned char nonce[TRI_AUTH_BYTES];
    *feed = NULL;
    TRI_TRY(tri_auth_nonce(nonce, err));
    tri_http_feed *f = calloc(1, sizeof *f);
    feed_event *ring = calloc(config->max_events, sizeof *ring);
    if (!f || !ring) {
        free(f);
        free(ring);
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for the events of the page");
    }
    *f = (tri_http_feed){.config = *config, .ring = ring, .first = 1, .next = 1};
    for (int i = 0; i < 4; i++)
        snprintf(f->epoch + 2 * i, 3, "%02x", nonce[i]);
    pthread_mutex_init(&f->lock, NULL);
    *feed = f;
    return TR_OK;
}

static feed_event *event_at(tri_http_feed *f, uint64_t number)
{
    return &f->ring[number % f->config.max_events];
}

static void forget_first(tri_http_feed *f)
{
    feed_event *event = event_at(f, f->first++);
    f->bytes -= event->length;
    free(event->text);
    *event = (feed_event){0};
}

void tri_http_feed_destroy(tri_http_feed *f)
{
    if (!f)
        return;
    while (f->first < f->next)
        forget_first(f);
    pthread_mutex_destroy(&f->lock);
    free(f->ring);
    free(f);
}

static bool hears(const feed_client *c, uint32_t topic)
{
    for (size_t i = 0; i < c->num_topics; i++)
        if (c->topics[i] == topic)
            return true;
    return topic == 0;
}

/* Those that sleep have seen all that they hear; what they do not hear must not overtake them. */
static void pass_over(tri_http_feed *f, uint32_t topic)
{
    for (feed_client *c = f->clients; c; c = c->next)
        if (c->sleeps && c->at + 1 == f->next && !hears(c, topic))
            c->at = f->next;
}

/* Wakes those that sleep, of one topic or all; takes the lock that the caller holds away. */
static void wake_and_unlock(tri_http_feed *f, bool all, uint32_t topic)
{
    struct MHD_Connection **wake = calloc((size_t)f->num_clients + 1, sizeof *wake);
    size_t num = 0;
    for (feed_client *c = f->clients; c && wake; c = c->next)
        if (c->sleeps && (all || hears(c, topic))) {
            c->sleeps = false;
            wake[num++] = c->connection;
        }
    pthread_mutex_unlock(&f->lock);
    for (size_t i = 0; i < num; i++)
        MHD_resume_connection(wake[i]);
    free(wake); /* without memory they wake with the next event */
}

void tri_http_feed_add(tri_http_feed *f, uint32_t topic, const char *kind, const char *data,
                       size_t num_bytes)
{
    tri_text text;
    tri_text_init(&text);
    while (num_bytes > 0 && data[num_bytes - 1] == '\n')
        num_bytes--;
    pthread_mutex_lock(&f->lock);
    tri_text_add(&text, "id: %s-%" PRIu64 "\nevent: %s\ndata: ", f->epoch, f->next, kind);
    tri_text_add_bytes(&text, data, num_bytes);
    tri_text_add(&text, "\n\n");
    if (text.failed || text.length > f->config.max_bytes / 4 || f->closed) {
        pthread_mutex_unlock(&f->lock);
        tri_text_fini(&text);
        return;
    }
    if (f->next - f->first == f->config.max_events)
        forget_first(f);
    *event_at(f, f->next++) = (feed_event){topic, text.chars, text.length};
    f->bytes += text.length;
    while (f->bytes > f->config.max_bytes)
        forget_first(f);
    pass_over(f, topic);
    wake_and_unlock(f, false, topic);
}

bool tri_http_feed_wanted(tri_http_feed *f, uint32_t topic)
{
    bool wanted = false;
    pthread_mutex_lock(&f->lock);
    for (const feed_client *c = f->clients; c && !wanted; c = c->next)
        wanted = hears(c, topic);
    pthread_mutex_unlock(&f->lock);
    return wanted;
}

int tri_http_feed_num_clients(tri_http_feed *f)
{
    pthread_mutex_lock(&f->lock);
    int num = f->num_clients;
    pthread_mutex_unlock(&f->lock);
    return num;
}

void tri_http_feed_beat(tri_http_feed *f)
{
    pthread_mutex_lock(&f->lock);
    for (feed_client *c = f->clients; c; c = c->next)
        c->beat = true;
    wake_and_unlock(f, true, 0);
}

void tri_http_feed_close(tri_http_feed *f)
{
    for (bool asleep = true; asleep;) {
        pthread_mutex_lock(&f->lock);
        f->closed = true;
        wake_and_unlock(f, true, 0);
        pthread_mutex_lock(&f->lock);
        asleep = false;
        for (const feed_client *c = f->clients; c; c = c->next)
            asleep |= c->sleeps;
        pthread_mutex_unlock(&f->lock);
    }
}

/* ---- a client ---- */

/* The next bytes; 0: there are none now. -1: it was overtaken, and is dropped. */
static ssize_t read_next(feed_client *c, char *out, size_t room)
{
    tri_http_feed *f = c->feed;
    size_t num = 0;
    const char **word = c->hello ? &c->hello : NULL;
    if (word) {
        num = strlen(*word) < room ? strlen(*word) : room;
        memcpy(out, *word, num);
        *word = (*word)[num] ? *word + num : NULL;
        return (ssize_t)num;
    }
    if (c->at < f->first)
        return -1;
    for (; num < room && c->at < f->next; c->at++, c->offset = 0) {
        const feed_event *event = event_at(f, c->at);
        if (!hears(c, event->topic))
            continue;
        size_t rest = event->length - c->offset, take = rest < room - num ? rest : room - num;
        memcpy(out + num, event->text + c->offset, take);
        num += take;
        c->offset += take;
        if (take < rest)
            break;
    }
    if (num == 0 && c->beat && room >= sizeof beat - 1) {
        num = sizeof beat - 1;
        memcpy(out, beat, num);
    }
    c->beat &= num == 0;
    return (ssize_t)num;
}

static ssize_t read_events(void *context, uint64_t position, char *out, size_t room)
{
    feed_client *c = context;
    tri_http_feed *f = c->feed;
    (void)position;
    pthread_mutex_lock(&f->lock);
    ssize_t num = f->closed ? -1 : read_next(c, out, room);
    if (num == 0) {
        c->sleeps = true;
        MHD_suspend_connection(c->connection);
    }
    pthread_mutex_unlock(&f->lock);
    return num < 0 ? (ssize_t)MHD_CONTENT_READER_END_OF_STREAM : num;
}

static void end_client(void *context)
{
    feed_client *c = context;
    tri_http_feed *f = c->feed;
    pthread_mutex_lock(&f->lock);
    for (feed_client **link = &f->clients; *link; link = &(*link)->next)
        if (*link == c) {
            *link = c->next;
            f->num_clients--;
            break;
        }
    pthread_mutex_unlock(&f->lock);
    free(c);
}

/* Where a client goes on that has seen an event; false: what follows is gone. */
static bool go_on(const tri_http_feed *f, const char *last_event, uint64_t *at)
{
    size_t length = strlen(f->epoch);
    *at = f->next;
    if (strncmp(last_event, f->epoch, length) != 0 || last_event[length] != '-')
        return false;
    uint64_t number = 0;
    const char *c = last_event + length + 1;
    for (int i = 0; i < 18 && *c >= '0' && *c <= '9'; i++)
        number = number * 10 + (uint64_t)(*c++ - '0');
    if (*c || number + 1 < f->first || number >= f->next)
        return false;
    *at = number + 1;
    return true;
}

struct MHD_Response *tri_http_feed_response(tri_http_feed *f, struct MHD_Connection *connection,
                                            const uint32_t *topics, size_t num_topics,
                                            const char *last_event)
{
    feed_client *c = calloc(1, sizeof *c);
    if (!c)
        return NULL;
    *c = (feed_client){.feed = f, .connection = connection, .hello = hello};
    c->num_topics = num_topics < TRI_HTTP_MAX_TOPICS ? num_topics : TRI_HTTP_MAX_TOPICS;
    memcpy(c->topics, topics, c->num_topics * sizeof *topics);
    pthread_mutex_lock(&f->lock);
    bool room = f->num_clients < f->config.max_clients && !f->closed;
    c->at = f->next;
    if (last_event && !go_on(f, last_event, &c->at))
        c->hello = hello_gap;
    if (room) {
        c->next = f->clients;
        f->clients = c;
        f->num_clients++;
    }
    pthread_mutex_unlock(&f->lock);
    if (!room) {
        free(c);
        return NULL;
    }
    struct MHD_Response *response = MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, BLOCK_BYTES,
                                                                      read_events, c, end_client);
    if (!response)
        end_client(c);
    return response;
}
