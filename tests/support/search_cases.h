/* Small spaces of layouts at random, for tests of the search: a model, a machine, and what is fixed
 * so that few layouts are left. Everything here fails the running cmocka test when it cannot. */
#ifndef TRI_TESTS_SEARCH_CASES_H
#define TRI_TESTS_SEARCH_CASES_H

#include "search/search.h"
#include "sim/machine_costs.h"
#include "sim/roofline.h"

typedef struct random_numbers {
    uint64_t state;
} random_numbers;
uint64_t random_next(random_numbers *r);
int64_t random_below(random_numbers *r, int64_t n);
bool random_one_in(random_numbers *r, int n);
uint64_t number_from_environment(const char *name, uint64_t fallback);

typedef struct search_case {
    random_numbers random;
    char text[1500];       /* settings, what is fixed and the machine, for people */
    char device_text[160]; /* as tri_device_spec_parse takes it */
    tr_settings *settings;
    tri_device_spec device;
    tri_link_spec link;
    tri_machine_model model;
    tri_device_model roofline;
    tri_space_facts facts; /* as the search should find them */
    tri_search_case of;
    tri_choices space;
} search_case;

/* The case of a number, with at most so many layouts. */
void search_case_init(search_case *c, uint64_t seed, uint64_t number, size_t most_layouts);
void search_case_fini(search_case *c);

/* All layouts of the space, looked at exactly; the caller frees them. */
tri_layout_result *search_case_look_at_all(const search_case *c, int threads);

#endif
