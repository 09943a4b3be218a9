/* The text format of Prometheus: for metrics.prom of a run, and for pages about many runs. */
#ifndef TRI_TRAIN_LOG_TEXT_PROMETHEUS_TEXT_H
#define TRI_TRAIN_LOG_TEXT_PROMETHEUS_TEXT_H

#include "base/text.h"
#include "train/log/row_numbers.h"

typedef struct tri_prometheus_metric {
    const char *name; /* "loss" is trireme_loss; one that counts is trireme_tokens_total */
    const char *help;
    bool counts;
} tri_prometheus_metric;

extern const tri_odd_numbers tri_prometheus_odd; /* what it calls numbers that are not finite */

/* What a metric is; its samples follow, one for each run. */
void tri_prometheus_family(tri_text *text, const tri_prometheus_metric *metric);
void tri_prometheus_sample(tri_text *text, const tri_prometheus_metric *metric, const char *run,
                           const char *value);

#endif
