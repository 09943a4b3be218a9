#include "train/log/log_format.h"

#include <errno.h>
#include <stdlib.h>

#include "base/fs.h"

void tri_log_latest_add(tri_log_latest *latest, const tri_metrics_row *row)
{
    latest->num = tri_row_num_numbers(row);
    if (latest->num > TRI_ROW_MAX_NUMBERS)
        latest->num = TRI_ROW_MAX_NUMBERS;
    latest->time_s = row->time_s;
    for (size_t i = 0; i < latest->num; i++) {
        tri_row_number number = tri_row_number_at(row, i);
        if (number.present || !latest->numbers[i].present)
            latest->numbers[i] = number;
    }
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
