/* The address of a request, percent signs and all; and the Host header. */
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "serve/http/access.h"
#include "serve/http/target.h"

static bool is_clean(const char *text)
{
    for (; *text; text++)
        if ((unsigned char)*text < ' ' || *text == 0x7f)
            return false;
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t num_bytes)
{
    static tri_http_target target;
    char *uri = malloc(num_bytes + 1);
    fuzz_require(uri, "memory");
    if (num_bytes > 0)
        memcpy(uri, data, num_bytes);
    uri[num_bytes] = 0;
    int status = tri_http_target_read(&target, uri);
    fuzz_require(status == 0 || status == 400 || status == 414, "it is read, or refused");
    fuzz_require(target.num_args <= TRI_HTTP_MAX_ARGS, "arguments are counted");
    if (status == 0) {
        fuzz_require(target.path[0] == '/' && is_clean(target.path), "a path begins with a slash");
        fuzz_require(strlen(target.path) <= strlen(uri), "nothing gets longer");
        for (size_t i = 0; i < target.num_args; i++)
            fuzz_require(*target.args[i].name && is_clean(target.args[i].name) &&
                             is_clean(target.args[i].value) &&
                             tri_http_target_arg(&target, target.args[i].name) ==
                                 target.args[i].value,
                         "an argument has a name, and is there once");
    }
    if (tri_http_host_is_local(uri))
        fuzz_require(uri[0] == 'l' || uri[0] == 'L' || uri[0] == '1' || uri[0] == '[',
                     "a host of this machine");
    free(uri);
    return 0;
}
