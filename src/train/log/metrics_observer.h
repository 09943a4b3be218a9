/* metrics.jsonl as an observer of a run: a line at every STEP. */
#ifndef TRI_TRAIN_LOG_METRICS_OBSERVER_H
#define TRI_TRAIN_LOG_METRICS_OBSERVER_H

#include "train/run/observer.h"

/* Owns the metrics from here on. */
tri_observer tri_metrics_observer(tri_metrics *metrics);

#endif
