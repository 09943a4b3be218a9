#include "cli/recipe.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/settings/nearest.h"
#include "base/text.h"

enum { MAX_PATH = 4096, NUM_PLACES = 3 };

#define HERE      "recipes"
#define INSTALLED "share/trireme/recipes"

/* The folders of recipes, in the order in which they are looked through. */
typedef struct recipe_folders {
    char dir[NUM_PLACES][MAX_PATH];
} recipe_folders;

static bool same_directory(const char *a, const char *b)
{
    struct stat one, other;
    return stat(a, &one) == 0 && stat(b, &other) == 0 && one.st_dev == other.st_dev &&
           one.st_ino == other.st_ino;
}

/* Here, where it was installed, and the checkout that it was built in. */
static void find_places(recipe_folders *p)
{
    char program[MAX_PATH];
    ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    *p = (recipe_folders){.dir = {HERE}};
    program[length > 0 ? length : 0] = 0;
    for (int i = 0; i < 2; i++) { /* PREFIX/bin/trireme, CHECKOUT/build/trireme */
        char *slash = strrchr(program, '/');
        if (!slash)
            return;
        *slash = 0;
    }
    size_t room = MAX_PATH - sizeof "/" INSTALLED;
    snprintf(p->dir[1], MAX_PATH, "%.*s/" INSTALLED, (int)room, program);
    snprintf(p->dir[2], MAX_PATH, "%.*s/" HERE, (int)room, program);
    if (same_directory(HERE, p->dir[2]))
        p->dir[2][0] = 0;
}

/* "tiny" for tiny, tiny.yaml and recipes/tiny.yaml; false for what cannot be a recipe. */
static bool recipe_name(const char *typed, char *name, size_t size)
{
    if (strncmp(typed, HERE "/", sizeof HERE) == 0)
        typed += sizeof HERE;
    size_t length = strlen(typed);
    for (int i = 0; i < 2; i++) {
        const char *end = i ? ".yml" : ".yaml";
        if (length > strlen(end) && strcmp(typed + length - strlen(end), end) == 0)
            length -= strlen(end);
    }
    if (length == 0 || length >= size || memchr(typed, '/', length))
        return false;
    memcpy(name, typed, length);
    name[length] = 0;
    return true;
}

typedef void (*take_recipe_fn)(void *context, const char *name);

static void each_recipe(const char *dir, take_recipe_fn take, void *context)
{
    tri_file_list list;
    if (!*dir || !tri_path_is_dir(dir) || tri_file_list_read(&list, dir, NULL) != TR_OK)
        return;
    for (size_t i = 0; i < list.num; i++) {
        char name[256];
        const char *file = list.name[i];
        size_t length = strlen(file);
        if (length >= 5 && strcmp(file + length - 5, ".yaml") == 0 &&
            recipe_name(file, name, sizeof name))
            take(context, name);
    }
    tri_file_list_free(&list);
}

void tri_recipes_list(take_recipe_fn take, void *context)
{
    recipe_folders p;
    find_places(&p);
    for (int i = 0; i < NUM_PLACES; i++)
        each_recipe(p.dir[i], take, context);
}

/* A list "demo, tiny (in recipes)", and the name in it that is most like the one wanted. */
typedef struct recipe_search {
    const char *wanted;
    tri_text *text;
    bool any; /* in this folder */
    char *nearest;
    size_t size;
} recipe_search;

static void list_recipe(void *context, const char *name)
{
    recipe_search *r = context;
    tri_text_add(r->text, "%s%s", r->any ? ", " : r->text->length > 0 ? "; " : "", name);
    r->any = true;
    if (tri_is_slip(r->wanted, name) &&
        (!*r->nearest ||
         tri_edit_distance(r->wanted, name) < tri_edit_distance(r->wanted, r->nearest)))
        snprintf(r->nearest, r->size, "%s", name);
}

static tr_status not_found(const recipe_folders *p, const char *typed, tr_error *err)
{
    char wanted[256] = "", nearest[256] = "", meant[300] = "";
    tri_text found;
    tri_text_init(&found);
    if (!recipe_name(typed, wanted, sizeof wanted))
        wanted[0] = 0;
    recipe_search search = {wanted, &found, false, nearest, sizeof nearest};
    for (int i = 0; i < NUM_PLACES; i++) {
        search.any = false;
        each_recipe(p->dir[i], list_recipe, &search);
        if (search.any)
            tri_text_add(&found, " (in %s)", p->dir[i]);
    }
    if (*nearest)
        snprintf(meant, sizeof meant, "did you mean %s? ", nearest);
    if (found.length > 0 && !found.failed)
        tri_fail(err, TR_ERROR_INPUT,
                 "there is no settings file %.200s; %sname a YAML file, a run directory or one of "
                 "the recipes: %s",
                 typed, meant, found.chars);
    else
        tri_fail(err, TR_ERROR_INPUT,
                 "there is no settings file %.200s; name a YAML file or a run directory, or begin "
                 "with --set alone: trireme train --set data.source=my.txt (no recipes were found "
                 "in ./" HERE "%s%s)",
                 typed, *p->dir[1] ? " or " : "", p->dir[1]);
    tri_text_fini(&found);
    return TR_ERROR_INPUT;
}

/* The path of a recipe in the first place that has it; NULL when none has, or there is no memory.
 */
static char *look_up(const recipe_folders *p, const char *name)
{
    for (int i = 0; i < NUM_PLACES; i++) {
        char *path = NULL;
        if (!*p->dir[i])
            continue;
        if (asprintf(&path, "%s/%s.yaml", p->dir[i], name) < 0)
            return NULL;
        if (tri_path_exists(path))
            return path;
        free(path);
    }
    return NULL;
}

bool tri_recipe_exists(const char *name)
{
    recipe_folders p;
    find_places(&p);
    char *path = *name && !strchr(name, '/') ? look_up(&p, name) : NULL;
    free(path);
    return path != NULL;
}

tr_status tri_recipe_find(const char *typed, char **path, tr_error *err)
{
    char name[256];
    struct stat info;
    recipe_folders p;
    /* What is there and cannot be opened is for the reader to report. */
    bool absent = stat(typed, &info) != 0 && (errno == ENOENT || errno == ENOTDIR);
    find_places(&p);
    *path = NULL;
    if (!absent)
        *path = strdup(typed);
    else if (recipe_name(typed, name, sizeof name))
        *path = look_up(&p, name);
    if (*path)
        return TR_OK;
    return absent ? not_found(&p, typed, err)
                  : tri_fail(err, TR_ERROR_RUNTIME, "no memory for a path");
}
