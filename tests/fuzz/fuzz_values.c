/* The numbers of arrays for the calculator: what is read fits, and has names. */
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "sim/place_values.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t num_bytes)
{
    tri_values values;
    tr_error err = {0};
    char *text = fuzz_text(data, num_bytes);
    if (fuzz_fine(tri_values_parse(text, &values, &err), &err)) {
        for (int i = 0; i < values.num_given; i++) {
            const tri_given_values *given = &values.given[i];
            fuzz_require(given->name[0] && strlen(given->name) < TRI_CALC_NAME, "a name");
            fuzz_require(given->num >= 0 && given->num <= TRI_VALUES_ELEMENTS, "a count");
            for (int64_t k = 0; k < given->num; k++)
                fuzz_require(given->numbers[k] >= -1000000 && given->numbers[k] <= 1000000,
                             "numbers within their range");
        }
        tri_values_fini(&values);
    }
    free(text);
    return 0;
}
