/* Settings as assignments, one a line, and the smaller notations that some of them hold: then all
 * of it is resolved to what a session wants. Nothing is compiled. */
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "config/resolve.h"
#include "recompute/recompute.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t num_bytes)
{
    tr_settings *settings;
    tr_error err = {0};
    fuzz_require(tr_settings_create(&settings, &err) == TR_OK, "memory");
    while (num_bytes > 0) {
        char *line = fuzz_line(&data, &num_bytes);
        /* Paths of the machine are not to be read. */
        if (strncmp(line, "data.", 5) != 0 && strncmp(line, "run.", 4) != 0)
            fuzz_fine(tr_settings_set(settings, line, &err), &err);
        free(line);
    }
    tri_recompute_config recompute;
    fuzz_fine(
        tri_recompute_parse(tr_settings_string(settings, "layout.recompute"), &recompute, &err),
        &err);
    tri_session_config config;
    memset(&config, 0, sizeof config);
    if (fuzz_fine(tri_settings_complete(settings, &err), &err))
        fuzz_fine(tri_session_config_from(settings, &config, &err), &err);
    tr_settings_destroy(settings);
    return 0;
}
