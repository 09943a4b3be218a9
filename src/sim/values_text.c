/* Numbers of arrays as they are typed. */
#include "sim/place_values.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

static tr_status read_array(const char **at, tri_given_values *given, tr_error *err)
{
    size_t length = strcspn(*at, "= \t");
    const char *c = *at + length;
    c += strspn(c, " \t");
    if (length == 0 || length >= TRI_CALC_NAME || *c != '=')
        return tri_fail(err, TR_ERROR_INPUT,
                        "--values: at \"%.20s\"; expected the name of an array and its numbers, "
                        "such as X=[1,2,0,1]",
                        *at);
    memcpy(given->name, *at, length);
    given->numbers = calloc(TRI_VALUES_ELEMENTS, sizeof *given->numbers);
    if (!given->numbers)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for numbers");
    for (c++; *c; c += strspn(c, "[], \t;")) {
        c += strspn(c, "[], \t;");
        if (!*c || isalpha((unsigned char)*c) || *c == '_')
            break;
        char *end;
        long long number = strtoll(c, &end, 10);
        if (end == c || number > 1000000 || number < -1000000 || (*end && !strchr("[], \t;", *end)))
            return tri_fail(err, TR_ERROR_INPUT,
                            "--values: \"%.12s\" of %s is not a whole number from -1000000 to "
                            "1000000",
                            c, given->name);
        if (given->num == TRI_VALUES_ELEMENTS)
            return tri_fail(err, TR_ERROR_INPUT, "--values: %s has more than %d numbers",
                            given->name, TRI_VALUES_ELEMENTS);
        given->numbers[given->num++] = number;
        c = end;
    }
    *at = c;
    return TR_OK;
}

tr_status tri_values_parse(const char *text, tri_values *values, tr_error *err)
{
    tr_status status = TR_OK;
    *values = (tri_values){.num_given = 0};
    for (const char *at = text + strspn(text, " \t;"); *at && status == TR_OK;) {
        if (values->num_given == TRI_VALUES_ARRAYS)
            status =
                tri_fail(err, TR_ERROR_INPUT, "--values: more than %d arrays", TRI_VALUES_ARRAYS);
        else
            status = read_array(&at, &values->given[values->num_given++], err);
    }
    if (status != TR_OK)
        tri_values_fini(values);
    return status;
}

void tri_values_fini(tri_values *values)
{
    for (int i = 0; i < values->num_given; i++)
        free(values->given[i].numbers);
    *values = (tri_values){.num_given = 0};
}
