/* All harnesses in one program of libFuzzer: FUZZ_HARNESS says which. */
#include "fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define X(name) int fuzz_##name(const uint8_t *data, size_t num_bytes);
FUZZ_HARNESSES
#undef X

static const struct {
    const char *name;
    int (*run)(const uint8_t *data, size_t num_bytes);
} harnesses[] = {
#define X(name) {#name, fuzz_##name},
    FUZZ_HARNESSES
#undef X
};
enum { NUM_HARNESSES = sizeof harnesses / sizeof *harnesses };

static int (*chosen)(const uint8_t *data, size_t num_bytes);

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    const char *name = getenv("FUZZ_HARNESS");
    (void)argc;
    (void)argv;
    for (int i = 0; name && i < NUM_HARNESSES; i++)
        if (strcmp(harnesses[i].name, name) == 0)
            chosen = harnesses[i].run;
    if (!chosen) {
        fprintf(stderr, "FUZZ_HARNESS must be one of:");
        for (int i = 0; i < NUM_HARNESSES; i++)
            fprintf(stderr, " %s", harnesses[i].name);
        fprintf(stderr, "\n");
        exit(2);
    }
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t num_bytes)
{
    return chosen(data, num_bytes);
}
