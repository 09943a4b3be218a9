/* A rank that is alone, in this process: a bootstrap without anybody else. */
#include "cli/launch/lone_rank.h"

#include <string.h>

#include "comm/control/control.h"
#include "comm/control/control_store.h"

typedef struct lone_rank {
    tri_control_store store;
    tri_stop stop;
    tri_rank_status status;
    /* The get in progress: */
    void *data;
    size_t capacity, num_bytes;
    bool answered;
} lone_rank;

static void lone_answer(void *context, void *waiter, const char *key, const void *data,
                        size_t num_bytes)
{
    lone_rank *lone = context;
    (void)key;
    if (!waiter)
        return;
    if (num_bytes > 0 && num_bytes <= lone->capacity)
        memcpy(lone->data, data, num_bytes);
    lone->num_bytes = num_bytes;
    lone->answered = true;
}

static tr_status lone_put(void *context, const char *key, const void *data, size_t num_bytes,
                          tr_error *err)
{
    lone_rank *lone = context;
    return tri_control_store_put(&lone->store, key, data, num_bytes, lone_answer, lone)
               ? TR_OK
               : tri_fail(err, TR_ERROR_RUNTIME, "no memory for the key %s", key);
}

static tr_status lone_get(void *context, const char *key, void *data, size_t capacity,
                          size_t *num_bytes, tr_error *err)
{
    lone_rank *lone = context;
    lone->data = data;
    lone->capacity = capacity;
    lone->answered = false;
    if (!tri_control_store_get(&lone->store, key, lone, lone_answer, lone))
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for the key %s", key);
    tri_control_store_forget(&lone->store, lone);
    if (!lone->answered)
        return tri_fail(err, TR_ERROR_INTERNAL, "nobody is there to put the key %s", key);
    if (lone->num_bytes > capacity)
        return tri_fail(err, TR_ERROR_INTERNAL, "the value of %s has %zu bytes, room for %zu", key,
                        lone->num_bytes, capacity);
    *num_bytes = lone->num_bytes;
    return TR_OK;
}

int tri_run_lone_rank(const tri_cli *cli, tri_rank_main rank_main, void *context)
{
    lone_rank lone = {0};
    tri_rank_status_init(&lone.status);
    tri_bootstrap bootstrap = {.size = 1,
                               .local_size = 1,
                               .deadline_s = tr_settings_float(cli->settings, "run.deadline_s"),
                               .stop = &lone.stop,
                               .status = &lone.status,
                               .context = &lone,
                               .put = lone_put,
                               .get = lone_get};
    int code = rank_main(cli, &bootstrap, context);
    tri_control_store_fini(&lone.store);
    return code;
}
