/* Settings as YAML. What loads is written, and what was written loads to the same. */
#include "fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trireme/settings.h"

static char *as_yaml(const tr_settings *settings)
{
    char *text = NULL;
    size_t length = 0;
    FILE *file = open_memstream(&text, &length);
    tr_error err = {0};
    fuzz_require(file && tr_settings_write_yaml(settings, file, &err) == TR_OK,
                 "settings are written");
    fclose(file);
    return text;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t num_bytes)
{
    tr_settings *settings, *again;
    tr_error err = {0};
    char *text = (char *)fuzz_bytes(data, num_bytes);
    fuzz_require(tr_settings_create(&settings, &err) == TR_OK, "memory");
    if (fuzz_fine(tr_settings_load_text(settings, "input.yaml", text, num_bytes, &err), &err)) {
        char *first = as_yaml(settings);
        fuzz_require(tr_settings_create(&again, &err) == TR_OK, "memory");
        fuzz_require(tr_settings_load_text(again, "again", first, strlen(first), &err) == TR_OK,
                     "settings that were written load");
        char *second = as_yaml(again);
        fuzz_require(strcmp(first, second) == 0, "and to the same values");
        tr_settings_destroy(again);
        free(first);
        free(second);
    }
    tr_settings_destroy(settings);
    free(text);
    return 0;
}
