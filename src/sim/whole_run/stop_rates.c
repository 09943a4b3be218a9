#include "sim/whole_run/stop_rates.h"

#include <strings.h>

/* Stops that nobody planned. Rates of nodes are of eight devices. */
static const tri_stop_rate rates[] = {
    {"llama3", "Llama 3 405B (2024): 419 in 54 days on 16,384 H100", 419, 54, 16384},
    {"rsc1", "Meta's RSC-1 (Kokolis et al. 2024): 6.50 in 1,000 days of a node of 8 A100", 6.5,
     1000, 8},
    {"rsc2", "Meta's RSC-2 (Kokolis et al. 2024): 2.34 in 1,000 days of a node of 8 A100", 2.34,
     1000, 8},
    {"bloom", "BLOOM 176B (2022): 1 to 2 a week on 384 A100", 1.5, 7, 384},
};

const tri_stop_rate *tri_stop_rate_at(size_t i)
{
    return i < sizeof rates / sizeof *rates ? &rates[i] : NULL;
}

const tri_stop_rate *tri_stop_rate_find(const char *name)
{
    for (size_t i = 0; i < sizeof rates / sizeof *rates; i++)
        if (strcasecmp(rates[i].name, name) == 0)
            return &rates[i];
    return NULL;
}

double tri_stop_rate_mtbf(const tri_stop_rate *rate)
{
    return rate->days * 86400 * rate->num_devices / rate->num_stops;
}
