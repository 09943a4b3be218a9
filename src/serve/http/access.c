#include "serve/http/access.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "comm/control/auth.h"

tr_status tri_http_access_init(tri_http_access *a, const char *token, bool loopback, int port,
                               tr_error *err)
{
    *a = (tri_http_access){.token = token, .loopback = loopback};
    snprintf(a->cookie_name, sizeof a->cookie_name, "trireme-%d", port);
    unsigned char code[TRI_AUTH_BYTES];
    if (!token)
        return TR_OK;
    if (!tri_auth_code(token, "cookie", a->cookie_name, strlen(a->cookie_name), code))
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for the token");
    for (int i = 0; i < TRI_AUTH_BYTES; i++)
        snprintf(a->cookie + 2 * i, 3, "%02x", code[i]);
    return TR_OK;
}

/* By codes of both: they have one length, and equal texts alone have equal codes. */
static bool same_text(const tri_http_access *a, const char *mine, const char *theirs)
{
    unsigned char code[2][TRI_AUTH_BYTES];
    return tri_auth_code(a->token, "compare", mine, strlen(mine), code[0]) &&
           tri_auth_code(a->token, "compare", theirs, strlen(theirs), code[1]) &&
           tri_auth_same(code[0], code[1]);
}

bool tri_http_host_is_local(const char *host)
{
    static const char *const names[] = {"localhost", "127.0.0.1", "[::1]"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        size_t length = strlen(names[i]);
        if (strncasecmp(host, names[i], length) != 0)
            continue;
        const char *port = host + length;
        if (*port == 0 || (*port == ':' && port[1] && strlen(port) <= 6 &&
                           port[1 + strspn(port + 1, "0123456789")] == 0))
            return true;
    }
    return false;
}

static enum MHD_Result count_hosts(void *context, enum MHD_ValueKind kind, const char *key,
                                   const char *value)
{
    (void)kind;
    (void)value;
    *(int *)context += strcasecmp(key, MHD_HTTP_HEADER_HOST) == 0;
    return MHD_YES;
}

static tri_http_verdict judge_token(const tri_http_access *a, struct MHD_Connection *connection,
                                    const tri_http_target *target)
{
    static const char bearer[] = "Bearer ";
    const char *given =
        MHD_lookup_connection_value(connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_AUTHORIZATION);
    const char *asked = tri_http_target_arg(target, "token");
    const char *cookie = MHD_lookup_connection_value(connection, MHD_COOKIE_KIND, a->cookie_name);
    if (given)
        return strncasecmp(given, bearer, sizeof bearer - 1) == 0 &&
                       same_text(a, a->token, given + sizeof bearer - 1)
                   ? TRI_HTTP_WELCOME
                   : TRI_HTTP_WRONG_TOKEN;
    if (asked)
        return same_text(a, a->token, asked) ? TRI_HTTP_ENTERS : TRI_HTTP_WRONG_TOKEN;
    if (cookie && same_text(a, a->cookie, cookie))
        return TRI_HTTP_WELCOME;
    return TRI_HTTP_STRANGER; /* a cookie of an earlier server is no attack */
}

tri_http_verdict tri_http_judge(const tri_http_access *a, struct MHD_Connection *connection,
                                const tri_http_target *target)
{
    int num = 0;
    const char *host =
        MHD_lookup_connection_value(connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_HOST);
    MHD_get_connection_values(connection, MHD_HEADER_KIND, count_hosts, &num);
    if (num > 1)
        return TRI_HTTP_MALFORMED;
    if (a->loopback && (!host || !tri_http_host_is_local(host)))
        return TRI_HTTP_WRONG_HOST;
    return a->token ? judge_token(a, connection, target) : TRI_HTTP_WELCOME;
}
