/* From a request to its answer. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "serve/http/feed_parts.h"
#include "serve/http/server_parts.h"

static const char json[] = "application/json; charset=utf-8";

/* ---- replies ---- */

void tri_http_refuse(tri_http_reply *reply, int status, const char *format, ...)
{
    char message[400];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    reply->status = status;
    reply->type = NULL;
    reply->bytes = NULL;
    reply->events = false;
    tri_text_fini(&reply->text);
    tri_text_init(&reply->text);
    tri_text_add(&reply->text, "{\"error\":\"");
    for (const char *c = message; *c; c++)
        if (*c == '"' || *c == '\\')
            tri_text_add(&reply->text, "\\%c", *c);
        else
            tri_text_add(&reply->text, "%c", (unsigned char)*c < ' ' ? ' ' : *c);
    tri_text_add(&reply->text, "\"}\n");
}

static struct MHD_Response *response_of(tri_http_server *server, tri_http_exchange *e)
{
    tri_http_reply *reply = &e->reply;
    if (reply->events) {
        struct MHD_Response *response =
            server->config.feed
                ? tri_http_feed_response(server->config.feed, e->connection, reply->topics,
                                         reply->num_topics,
                                         *e->request.last_event ? e->request.last_event : NULL)
                : NULL;
        if (response)
            return response;
        tri_http_refuse(reply, MHD_HTTP_TOO_MANY_REQUESTS,
                        "too many pages listen to events already");
    }
    if (reply->text.failed)
        tri_http_refuse(reply, MHD_HTTP_TOO_MANY_REQUESTS, "there is no memory for the answer now");
    if (reply->bytes)
        return MHD_create_response_from_buffer(reply->num_bytes, (void *)(uintptr_t)reply->bytes,
                                               MHD_RESPMEM_PERSISTENT);
    char *chars = reply->text.chars; /* MHD frees it */
    size_t length = reply->text.length;
    struct MHD_Response *response = MHD_create_response_from_buffer(
        length, chars ? chars : "", chars ? MHD_RESPMEM_MUST_FREE : MHD_RESPMEM_PERSISTENT);
    if (response)
        tri_text_init(&reply->text);
    return response;
}

static void add_headers(struct MHD_Response *response, const tri_http_reply *reply)
{
    static const char *const headers[][2] = {
        {"Content-Security-Policy", "default-src 'self'; img-src 'self' data:; base-uri 'none'; "
                                    "form-action 'none'; frame-ancestors 'none'"},
        {"X-Content-Type-Options", "nosniff"},
        {"X-Frame-Options", "DENY"},
        {"Referrer-Policy", "no-referrer"},
        {"Cross-Origin-Resource-Policy", "same-origin"},
        {"Cross-Origin-Opener-Policy", "same-origin"},
        {"Cache-Control", "no-store"},
    };
    for (size_t i = 0; i < sizeof headers / sizeof *headers; i++)
        MHD_add_response_header(response, headers[i][0], headers[i][1]);
    MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE,
                            reply->events ? "text/event-stream; charset=utf-8"
                            : reply->type ? reply->type
                                          : json);
    if (reply->status == MHD_HTTP_METHOD_NOT_ALLOWED)
        MHD_add_response_header(response, MHD_HTTP_HEADER_ALLOW, "GET, HEAD");
    if (reply->status == MHD_HTTP_UNAUTHORIZED)
        MHD_add_response_header(response, MHD_HTTP_HEADER_WWW_AUTHENTICATE, "Bearer");
}

static void add_cookie(const tri_http_server *server, const tri_http_exchange *e,
                       struct MHD_Response *response)
{
    char cookie[200];
    const tri_http_access *access = &server->access;
    snprintf(cookie, sizeof cookie, "%s=%s; Path=/; HttpOnly; SameSite=Strict", access->cookie_name,
             access->cookie);
    MHD_add_response_header(response, MHD_HTTP_HEADER_SET_COOKIE, cookie);
    MHD_add_response_header(response, MHD_HTTP_HEADER_LOCATION, e->location);
}

static enum MHD_Result answer(tri_http_server *server, tri_http_exchange *e)
{
    struct MHD_Response *response = response_of(server, e);
    if (!response)
        return MHD_NO; /* without memory the connection ends */
    add_headers(response, &e->reply);
    if (e->location)
        add_cookie(server, e, response);
    tri_http_peer_takes(server, e->connection, true, e->reply.events);
    enum MHD_Result queued = MHD_queue_response(e->connection, (unsigned)e->reply.status, response);
    MHD_destroy_response(response);
    return queued;
}

/* ---- requests ---- */

void *tri_http_exchange_begin(void *server, const char *uri, struct MHD_Connection *connection)
{
    (void)server;
    tri_http_exchange *e = calloc(1, sizeof *e);
    if (!e)
        return NULL;
    e->connection = connection;
    e->reply.status = MHD_HTTP_OK;
    tri_text_init(&e->reply.text);
    e->malformed = tri_http_target_read(&e->request.target, uri);
    return e;
}

void tri_http_exchange_end(void *server, struct MHD_Connection *connection, void **exchange,
                           enum MHD_RequestTerminationCode how)
{
    tri_http_exchange *e = *exchange;
    (void)how;
    tri_http_peer_takes(server, connection, false, false);
    if (e)
        tri_text_fini(&e->reply.text);
    free(e);
    *exchange = NULL;
}

static bool has_body(struct MHD_Connection *connection)
{
    const char *length =
        MHD_lookup_connection_value(connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_CONTENT_LENGTH);
    return MHD_lookup_connection_value(connection, MHD_HEADER_KIND,
                                       MHD_HTTP_HEADER_TRANSFER_ENCODING) ||
           (length && length[strspn(length, "0")]);
}

static void add_encoded(char *out, size_t size, const char *text)
{
    size_t at = strlen(out);
    for (; *text && at + 4 < size; text++)
        at += (size_t)snprintf(out + at, size - at, "%%%02X", (unsigned char)*text);
}

/* The same place without the token. Only to a path that there is, and never to another host. */
static void redirect(tri_http_exchange *e)
{
    const tri_http_target *t = &e->request.target;
    const char *between = "?";
    snprintf(e->place, sizeof e->place, "%s", e->route ? e->route->path : "/");
    for (size_t i = 0; i < t->num_args && e->route; i++) {
        if (strcmp(t->args[i].name, "token") == 0)
            continue;
        size_t length = strlen(e->place);
        snprintf(e->place + length, sizeof e->place - length, "%s", between);
        add_encoded(e->place, sizeof e->place, t->args[i].name);
        length = strlen(e->place);
        snprintf(e->place + length, sizeof e->place - length, "=");
        add_encoded(e->place, sizeof e->place, t->args[i].value);
        between = "&";
    }
    e->location = e->place;
    e->reply.status = MHD_HTTP_SEE_OTHER;
}

/* What is refused before anything is looked up; true: it is. */
static bool refused(const tri_http_server *server, tri_http_exchange *e, const char *method)
{
    tri_http_reply *reply = &e->reply;
    switch (tri_http_judge(&server->access, e->connection, &e->request.target)) {
    case TRI_HTTP_STRANGER:
        tri_http_refuse(reply, MHD_HTTP_UNAUTHORIZED,
                        "a token is needed: open the address that `trireme watch` printed");
        return true;
    case TRI_HTTP_WRONG_TOKEN:
        tri_http_refuse(reply, MHD_HTTP_FORBIDDEN, "this is not the token");
        return true;
    case TRI_HTTP_WRONG_HOST:
        tri_http_refuse(reply, MHD_HTTP_FORBIDDEN,
                        "the Host header does not name this machine: ask for localhost");
        return true;
    case TRI_HTTP_MALFORMED:
        tri_http_refuse(reply, MHD_HTTP_BAD_REQUEST, "the headers are malformed");
        return true;
    case TRI_HTTP_ENTERS:
        e->location = e->place;
        break;
    case TRI_HTTP_WELCOME:
        break;
    }
    if (strcmp(method, MHD_HTTP_METHOD_GET) != 0 && strcmp(method, MHD_HTTP_METHOD_HEAD) != 0)
        tri_http_refuse(reply, MHD_HTTP_METHOD_NOT_ALLOWED, "only GET and HEAD are answered");
    else if (has_body(e->connection))
        tri_http_refuse(reply, MHD_HTTP_CONTENT_TOO_LARGE, "a request has no body here");
    else if (e->malformed)
        tri_http_refuse(reply, e->malformed, "the address is %s",
                        e->malformed == MHD_HTTP_URI_TOO_LONG ? "too long" : "malformed");
    return reply->status != MHD_HTTP_OK;
}

static const tri_http_route *route_of(const tri_http_server *server, const char *path)
{
    for (const tri_http_route *route = server->config.routes; route->path; route++)
        if (strcmp(route->path, path) == 0)
            return route;
    return NULL;
}

/* The first turn of a request, when its headers are there. An answer at this point ends the
 * connection, which is right for whoever is refused. */
static enum MHD_Result greet(tri_http_server *server, tri_http_exchange *e, const char *method)
{
    const char *last = MHD_lookup_connection_value(e->connection, MHD_HEADER_KIND, "Last-Event-ID");
    snprintf(e->request.last_event, sizeof e->request.last_event, "%s", last ? last : "");
    if (refused(server, e, method)) {
        e->location = NULL;
        return answer(server, e);
    }
    e->state = TRI_EXCHANGE_GREETED;
    return MHD_YES;
}

/* The second, when all of it is there. */
static enum MHD_Result handle(tri_http_server *server, tri_http_exchange *e)
{
    e->state = TRI_EXCHANGE_READY;
    e->route = route_of(server, e->request.target.path);
    if (e->location) {
        redirect(e);
    } else if (e->route && !e->route->quick) {
        if (tri_http_wait_for_worker(server, e))
            return MHD_YES;
        tri_http_refuse(&e->reply, MHD_HTTP_TOO_MANY_REQUESTS, "too many requests wait already");
    } else if (e->route) {
        e->route->handle(server->config.context, &e->request, &e->reply);
    } else if (server->config.other) {
        server->config.other(server->config.context, &e->request, &e->reply);
    } else {
        tri_http_refuse(&e->reply, MHD_HTTP_NOT_FOUND, "there is no such page");
    }
    return answer(server, e);
}

enum MHD_Result tri_http_exchange_turn(void *context, struct MHD_Connection *connection,
                                       const char *url, const char *method, const char *version,
                                       const char *upload, size_t *num_upload, void **exchange)
{
    tri_http_server *server = context;
    tri_http_exchange *e = *exchange;
    (void)connection;
    (void)url;
    (void)version;
    (void)upload;
    if (!e)
        return MHD_NO;
    if (e->state == TRI_EXCHANGE_NEW)
        return greet(server, e, method);
    if (*num_upload > 0)
        return MHD_NO; /* a body that no header told of */
    return e->state == TRI_EXCHANGE_GREETED ? handle(server, e) : answer(server, e);
}
