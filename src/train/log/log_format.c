#include "train/log/log_format.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fs.h"

void tri_log_latest_add(tri_log_latest *latest, const tri_metrics_row *row)
{
    latest->num = tri_row_num_numbers(row);
    if (latest->num > TRI_LOG_MAX_NUMBERS)
        latest->num = TRI_LOG_MAX_NUMBERS;
    latest->time_s = row->time_s;
    for (size_t i = 0; i < latest->num; i++) {
        tri_row_number number = tri_row_number_at(row, i);
        if (number.present || !latest->numbers[i].present)
            latest->numbers[i] = number;
    }
}

/* A program that has this library inside may have set a locale that writes commas. */
static char *with_points(char *text)
{
    for (char *c = text; *c; c++)
        *c = *c == ',' ? '.' : *c;
    return text;
}

char *tri_log_number(const tri_row_number *number, const tri_log_odd *odd,
                     char out[TRI_LOG_NUMBER_BYTES])
{
    double real = number->real;
    if (number->whole)
        snprintf(out, TRI_LOG_NUMBER_BYTES, "%" PRId64, number->integer);
    else if (isfinite(real))
        snprintf(out, TRI_LOG_NUMBER_BYTES, "%.9g", real);
    else
        snprintf(out, TRI_LOG_NUMBER_BYTES, "%s",
                 isnan(real) ? odd->nan
                 : real > 0  ? odd->infinity
                             : odd->minus_infinity);
    return with_points(out);
}

char *tri_log_time(double time_s, char out[TRI_LOG_NUMBER_BYTES])
{
    snprintf(out, TRI_LOG_NUMBER_BYTES, "%.3f", time_s);
    return with_points(out);
}

int tri_log_make_dir(const char *dir, const char *name, char **path)
{
    *path = tri_path_join(dir, name);
    if (!*path)
        return ENOMEM;
    if (tri_make_dirs(*path, NULL) == TR_OK)
        return 0;
    int reason = errno ? errno : EIO;
    free(*path);
    *path = NULL;
    return reason;
}
