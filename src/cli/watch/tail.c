#include "cli/watch/tail.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/json.h"

enum { MOST_LAST_BYTES = 1 << 20 };

/* -1: there is no such regular file. Names are those of this program. */
static int open_in(const char *dir, const char *name, struct stat *info)
{
    char *path = tri_path_join(dir, name);
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK) : -1;
    free(path);
    if (fd >= 0 && (fstat(fd, info) != 0 || !S_ISREG(info->st_mode))) {
        close(fd);
        fd = -1;
    }
    return fd;
}

void tri_tail_begin(tri_tail *tail, const char *dir, const char *name)
{
    struct stat info;
    int fd = open_in(dir, name, &info);
    *tail = (tri_tail){0};
    if (fd < 0)
        return;
    /* A line that is being written is new when it is whole. */
    char last[4096];
    int64_t from = info.st_size > (int64_t)sizeof last ? info.st_size - (int64_t)sizeof last : 0;
    ssize_t num = pread(fd, last, (size_t)(info.st_size - from), from);
    const char *newline = num > 0 ? memrchr(last, '\n', (size_t)num) : NULL;
    tail->inode = (int64_t)info.st_ino;
    tail->offset = newline ? from + (newline - last) + 1 : from == 0 ? 0 : info.st_size;
    close(fd);
}

/* The bytes [from, to), whole lines alone unless the first is cut; *taken: up to where. */
static void add_lines(int fd, int64_t from, int64_t to, bool cut, tri_text *text, int64_t *taken)
{
    char *bytes = malloc((size_t)(to - from) + 1);
    ssize_t num = bytes ? pread(fd, bytes, (size_t)(to - from), from) : -1;
    const char *end = num > 0 ? memrchr(bytes, '\n', (size_t)num) : NULL;
    const char *begin = bytes;
    if (cut && end)
        begin = (const char *)memchr(bytes, '\n', (size_t)num) + 1;
    if (end && begin <= end)
        tri_text_add_bytes(text, begin, (size_t)(end + 1 - begin));
    if (end)
        *taken = from + (end + 1 - bytes);
    free(bytes);
}

bool tri_tail_new(tri_tail *tail, const char *dir, const char *name, size_t most, tri_text *text)
{
    struct stat info;
    size_t before = text->length;
    int fd = open_in(dir, name, &info);
    if (fd < 0) {
        *tail = (tri_tail){0};
        return false;
    }
    if ((int64_t)info.st_ino != tail->inode || info.st_size < tail->offset)
        *tail = (tri_tail){.inode = (int64_t)info.st_ino};
    if (info.st_size > tail->offset) {
        bool cut = info.st_size - tail->offset > (int64_t)most;
        add_lines(fd, cut ? info.st_size - (int64_t)most : tail->offset, info.st_size, cut, text,
                  &tail->offset);
    }
    close(fd);
    return text->length > before;
}

json_t *tri_tail_last(const char *dir, const char *name, size_t most)
{
    tri_tail tail = {0};
    tri_text text;
    json_t *list = json_array();
    tri_text_init(&text);
    if (list && tri_tail_new(&tail, dir, name, MOST_LAST_BYTES, &text) && !text.failed) {
        const char *at = text.chars + text.length - 1; /* the last newline */
        size_t num = 0;
        while (at > text.chars && num < most) {
            const char *before = memrchr(text.chars, '\n', (size_t)(at - text.chars));
            const char *begin = before ? before + 1 : text.chars;
            json_t *object;
            if (tri_json_load(name, begin, (size_t)(at - begin), JSON_ALLOW_NUL, &object, NULL,
                              NULL) == TR_OK &&
                json_is_object(object)) {
                json_array_insert_new(list, 0, object);
                num++;
            } else {
                json_decref(object);
            }
            if (!before)
                break;
            at = before;
        }
    }
    tri_text_fini(&text);
    return list;
}
