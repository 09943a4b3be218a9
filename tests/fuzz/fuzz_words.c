/* Small notations, one a line, told apart by its first character:
 *   r full  b data:0.7,c:0.3  c F=1,comm=0.2  t torus2d:4x2  s 4,4,3,5  l negative;positive  p {a}
 */
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "collective/collective.h"
#include "data/source/blend.h"
#include "data/source/labels.h"
#include "data/source/template.h"
#include "place/stages.h"
#include "recompute/recompute.h"
#include "sim/sim.h"

static void read_blend(const char *text)
{
    tri_blend_list list;
    tr_error err = {0};
    if (!fuzz_fine(tri_blend_parse(text, &list, &err), &err))
        return;
    uint64_t weight[TRI_BLEND_MAX_SOURCES], within;
    tri_blend blend;
    tri_blend_weights(&list, weight);
    if (fuzz_fine(tri_blend_init(&blend, weight, list.num, &err), &err)) {
        for (uint64_t i = 0; i < 100; i++)
            fuzz_require(tri_blend_at(&blend, i, &within) < list.num && within <= i,
                         "a sample comes from one of the sources");
        tri_blend_fini(&blend);
    }
    tri_blend_list_fini(&list);
}

static void read_stages(const char *text)
{
    double cost[10] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    int chunk_of[10] = {0};
    uint32_t home[4] = {0, 1, 2, 3};
    tri_stages stages = {.num_ranks = 4,
                         .num_chunks = 4,
                         .num_routes = 1,
                         .home = home,
                         .num_layers = 8,
                         .chunk_of = chunk_of};
    tr_error err = {0};
    if (fuzz_fine(tri_stages_divide(&stages, cost, text, &err), &err))
        for (int i = 0; i < 10; i++)
            fuzz_require(chunk_of[i] >= 0 && chunk_of[i] < 4 &&
                             (i == 0 || chunk_of[i] >= chunk_of[i - 1]),
                         "layers stand in chunks, in order");
}

static void read_line(char kind, const char *text)
{
    tr_error err = {0};
    tri_recompute_config recompute;
    tri_action_costs costs = tri_sim_unit_costs();
    const tri_algorithm *algorithm;
    tri_coll_shape shape = tri_shape_flat(8);
    tri_labels labels;
    tri_template *template;
    char description[200];
    switch (kind) {
    case 'r':
        fuzz_fine(tri_recompute_parse(text, &recompute, &err), &err);
        break;
    case 'b':
        read_blend(text);
        break;
    case 'c':
        fuzz_fine(tri_sim_parse_costs(text, &costs, &err), &err);
        break;
    case 't':
        fuzz_fine(tri_algorithm_parse(text, &algorithm, &shape, &err), &err);
        break;
    case 's':
        read_stages(text);
        break;
    case 'l':
        if (fuzz_fine(tri_labels_parse(text, &labels, &err), &err)) {
            tri_labels_describe(&labels, description, sizeof description);
            tri_labels_fini(&labels);
        }
        break;
    case 'p':
        if (fuzz_fine(tri_template_parse("data.template", text, "output", &template, &err), &err))
            tri_template_destroy(template);
        break;
    default:
        break;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t num_bytes)
{
    while (num_bytes > 0) {
        char *line = fuzz_line(&data, &num_bytes);
        if (line[0] && line[1])
            read_line(line[0], line + 2);
        free(line);
    }
    return 0;
}
