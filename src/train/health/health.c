#include "train/health/health.h"

#include "base/clock.h"

tr_status tri_health_open(tri_health *h, const tri_session *session, const tri_ranks *ranks,
                          tr_error *err)
{
    *h = (tri_health){.session = session};
    h->work = (float)tri_program_cost(&session->programs[TRI_PROGRAM_TRAIN]).flops;
    tri_health_resume(h);
    return ranks->rank == 0 && ranks->size > 1 ? tri_slow_create(ranks->size, &h->slow, err)
                                               : TR_OK;
}

void tri_health_close(tri_health *h)
{
    tri_slow_destroy(h->slow);
    *h = (tri_health){0};
}

void tri_health_resume(tri_health *h)
{
    h->begin = tri_session_own_time(h->session);
    h->begin_ns = tri_now_ns();
}

void tri_health_pause(tri_health *h)
{
    tri_own_time now = tri_session_own_time(h->session);
    for (int k = 0; k < TRI_NUM_OWN; k++)
        h->passed.ns[k] += now.ns[k] - h->begin.ns[k];
    h->passed.waited_ns += now.waited_ns - h->begin.waited_ns;
    h->passed_ns += (int64_t)(tri_now_ns() - h->begin_ns);
    h->begin_ns = 0;
}

/* Since the rank began, for whoever watches it. */
static void show(tri_rank_status *status, const tri_own_time *own)
{
    for (int k = 0; status && k < TRI_NUM_OWN; k++)
        atomic_fetch_add_explicit(&status->own_ns[k], own->ns[k], memory_order_relaxed);
    if (status)
        atomic_fetch_add_explicit(&status->waited_ns, own->waited_ns, memory_order_relaxed);
}

tri_rank_word tri_health_word(tri_health *h, unsigned wishes)
{
    tri_health_pause(h);
    tri_own_time own = h->passed;
    int64_t other = h->passed_ns - own.waited_ns;
    /* Lanes that wait beside each other may count more than there was. */
    for (int k = 0; k < TRI_NUM_OWN; k++) {
        own.ns[k] = own.ns[k] > 0 ? own.ns[k] : 0;
        other -= own.ns[k];
    }
    own.ns[TRI_OWN_OTHER] += other > 0 ? other : 0;
    h->passed = (tri_own_time){0};
    h->passed_ns = 0;
    show(h->session->status, &own);
    tri_rank_word word = {
        .wishes = wishes, .waited_ms = (float)own.waited_ns * 1e-6f, .work = h->work};
    for (int k = 0; k < TRI_NUM_OWN; k++)
        word.own_ms[k] = (float)own.ns[k] * 1e-6f;
    tri_health_resume(h);
    return word;
}
