#include "train/log/text/prometheus_text.h"

const tri_odd_numbers tri_prometheus_odd = {"NaN", "+Inf", "-Inf"};

void tri_prometheus_family(tri_text *text, const tri_prometheus_metric *m)
{
    const char *total = m->counts ? "_total" : "";
    tri_text_add(text, "# HELP trireme_%s%s %s\n# TYPE trireme_%s%s %s\n", m->name, total, m->help,
                 m->name, total, m->counts ? "counter" : "gauge");
}

void tri_prometheus_sample(tri_text *text, const tri_prometheus_metric *m, const char *run,
                           const char *value)
{
    tri_text_add(text, "trireme_%s%s{run=\"", m->name, m->counts ? "_total" : "");
    for (const char *c = run; *c; c++)
        tri_text_add(text, "%s%c", *c == '\n' || *c == '"' || *c == '\\' ? "\\" : "",
                     *c == '\n' ? 'n' : *c);
    tri_text_add(text, "\"} %s\n", value);
}
