#include "cli/launch/job_token.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fs.h"
#include "comm/control/token_file.h"

static const char prefix[] = ".token-";

static void clean(const char *run_dir)
{
    DIR *dir = opendir(run_dir);
    for (const struct dirent *at; dir && (at = readdir(dir));)
        if (strncmp(at->d_name, prefix, sizeof prefix - 1) == 0)
            (void)unlinkat(dirfd(dir), at->d_name, 0);
    if (dir)
        closedir(dir);
}

tr_status tri_job_token_path(const char *run_dir, bool writes, int port, bool cleans, char **path,
                             tr_error *err)
{
    char name[32], own[64];
    *path = NULL;
    snprintf(name, sizeof name, "%s%d", prefix, port);
    if (writes && cleans)
        clean(run_dir);
    if (writes || tri_path_is_dir(run_dir)) {
        *path = tri_path_join(run_dir, name);
    } else {
        TRI_TRY(tri_token_private_dir(own, sizeof own, err));
        *path = tri_path_join(own, name);
    }
    return *path ? TR_OK : tri_fail(err, TR_ERROR_RUNTIME, "no memory for a path");
}
