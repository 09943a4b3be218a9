/* The world as the environment tells it: lines NAME=VALUE, of the names that are looked at. */
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "cli/launch/environment.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t num_bytes)
{
    static const char *const beginnings[] = {"RANK",          "WORLD_", "LOCAL_", "MASTER_",
                                             "TRIREME_TOKEN", "SLURM_", "OMPI_",  "PMI",
                                             "PALS_",         "MPI_"};
    char *lines[32], *equals;
    bool is_set[32] = {false};
    int num = 0;
    while (num_bytes > 0 && num < 32) {
        char *line = lines[num++] = fuzz_line(&data, &num_bytes);
        for (size_t i = 0; i < sizeof beginnings / sizeof *beginnings; i++)
            if (strncmp(line, beginnings[i], strlen(beginnings[i])) == 0 &&
                (equals = strchr(line, '=')) != NULL) {
                *equals = '\0';
                is_set[num - 1] = setenv(line, equals + 1, 1) == 0;
                break;
            }
    }
    tri_environment world;
    tr_error err = {0};
    if (fuzz_fine(tri_environment_read(&world, &err), &err) && world.given)
        fuzz_require(world.size >= 1 && world.rank >= 0 && world.rank < world.size &&
                         world.local_rank >= -1 && world.port >= 0 && world.port <= 65535,
                     "a rank of a world");
    for (int i = 0; i < num; i++) {
        if (is_set[i])
            unsetenv(lines[i]);
        free(lines[i]);
    }
    return 0;
}
