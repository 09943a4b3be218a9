/* A file becomes a plug-in. */
#include "plugin/plugin.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/checksum.h"

/* The folders above the one that the file lies in, which tri_library_open looks at itself: whoever
 * may rename one of them can put another file in its place. In a folder like /tmp, where only
 * owners rename (the sticky bit), others may write. */
static tr_status check_folders(const char *real, tr_error *err)
{
    char *path = strdup(real), *slash;
    tr_status status = path ? TR_OK : tri_fail(err, TR_ERROR_RUNTIME, "no memory for a path");
    while (status == TR_OK && (slash = strrchr(path, '/'))) {
        struct stat s;
        slash[slash == path] = 0; /* "/" itself comes last */
        if (stat(path, &s) != 0)
            status =
                tri_fail(err, TR_ERROR_INPUT, "%s cannot be looked at: %s", path, strerror(errno));
        else if (s.st_uid != 0 && s.st_uid != geteuid())
            status = tri_fail(err, TR_ERROR_INPUT,
                              "its folder %s belongs to user %ld, who is neither root nor you; put "
                              "the plug-in into a folder of your own",
                              path, (long)s.st_uid);
        else if ((s.st_mode & (S_IWGRP | S_IWOTH)) && !(s.st_mode & S_ISVTX))
            status = tri_fail(err, TR_ERROR_INPUT,
                              "others may write to its folder %s (mode %03o), so it may be "
                              "anybody's code; chmod go-w %s, or put the plug-in elsewhere",
                              path, (unsigned)s.st_mode & 0777, path);
        if (!path[1])
            break;
    }
    free(path);
    return status;
}

/* Of the file that was opened, whatever lies under its name by now. */
static tr_status hash_file(int fd, uint64_t *hash, tr_error *err)
{
    tri_checksum sum;
    char bytes[65536];
    ssize_t got;
    off_t at = 0;
    tri_checksum_init(&sum);
    while ((got = pread(fd, bytes, sizeof bytes, at)) > 0) {
        tri_checksum_add(&sum, bytes, (size_t)got);
        at += got;
    }
    *hash = tri_checksum_end(&sum);
    return got == 0 ? TR_OK
                    : tri_fail(err, TR_ERROR_RUNTIME, "cannot be read: %s", strerror(errno));
}

static tr_status open_library(tri_plugin *plugin, tr_error *err)
{
    char why[900];
    TRI_TRY(check_folders(plugin->path, err));
    if (!tri_library_open(&plugin->library, plugin->path, RTLD_NOW | RTLD_LOCAL, true, why,
                          sizeof why))
        return tri_fail(err, TR_ERROR_INPUT, "%s", why);
    TRI_TRY(hash_file(plugin->library.file, &plugin->hash, err));
    const tr_plugin *table = dlsym(plugin->library.handle, "trireme_plugin");
    if (!table)
        return tri_fail(err, TR_ERROR_INPUT,
                        "it is a library without the symbol trireme_plugin, so no plug-in of "
                        "Trireme; trireme/plugin.h says what one has");
    if (table->abi != TR_PLUGIN_ABI)
        return tri_fail(err, TR_ERROR_INPUT,
                        "it was built for version %u of trireme/plugin.h, and this program has "
                        "version %d; build it again with this one's header",
                        table->abi, TR_PLUGIN_ABI);
    return tri_plugin_take(plugin, table, err);
}

tr_status tri_plugin_open(const char *path, tri_plugin **out, tr_error *err)
{
    *out = NULL;
    tri_plugin *plugin = calloc(1, sizeof *plugin);
    if (!plugin)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for a plug-in");
    plugin->refs = 1;
    plugin->library.file = -1;
    plugin->path = realpath(path, NULL);
    tr_status status =
        plugin->path ? open_library(plugin, err)
                     : tri_fail(err, TR_ERROR_INPUT,
                                "it cannot be opened: %s; name a shared object that you may read",
                                strerror(errno));
    if (status == TR_OK) {
        *out = plugin;
        return TR_OK;
    }
    tri_plugin_release(plugin);
    return tri_fail_prefix(err, status, "plug-in %s", path);
}

tri_plugin *tri_plugin_share(tri_plugin *plugin)
{
    plugin->refs++;
    return plugin;
}

void tri_plugin_release(tri_plugin *plugin)
{
    if (!plugin || --plugin->refs > 0)
        return;
    tri_library_close(&plugin->library);
    free(plugin->settings);
    free(plugin->path);
    free(plugin);
}
