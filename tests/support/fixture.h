/* Training runs of the PyTorch reference (tests/fixtures), and the session that repeats one. */
#ifndef TRI_TESTS_FIXTURE_H
#define TRI_TESTS_FIXTURE_H

#include "ckpt/safetensors.h"
#include "train/session.h"

typedef struct fixture {
    tri_safetensors *file;
    tri_session_config config; /* strings point into text */
    int64_t num_steps;
    void *text; /* parsed JSON */
    const int32_t *tokens, *targets;
    const float *x, *target;
} fixture;

/* Both fail the running cmocka test when something is missing. */
void fixture_open(fixture *f, const char *name);
void fixture_close(fixture *f);
/* A started session that reads the fixture's rows. */
void fixture_start(fixture *f, tri_session *session);
const float *fixture_tensor(const fixture *f, const char *prefix, const char *name);
bool fixture_has(const fixture *f, const char *prefix, const char *name);

#endif
