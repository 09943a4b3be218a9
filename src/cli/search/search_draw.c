#include "cli/search/search_draw.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/draw/svg.h"
#include "base/fs.h"

/* ---- what may be written ---- */

/* The pictures of a search; those of the winner's step are as trireme sim draws them. */
static const struct picture_file {
    const char *name, *mark, *by;
} files[] = {
    {"heatmap", TRI_SEARCH_PICTURE_MARK, "trireme plan"},
    {"best", TRI_SEARCH_PICTURE_MARK, "trireme plan"},
    {"pareto", TRI_SEARCH_PICTURE_MARK, "trireme plan"},
    {"scaling", TRI_SEARCH_PICTURE_MARK, "trireme plan"},
    {"memory", TRI_PICTURE_MARK, "trireme sim"},
    {"timeline", TRI_PICTURE_MARK, "trireme sim"},
    {"utilisation", TRI_PICTURE_MARK, "trireme sim"},
};
enum { NUM_FILES = sizeof files / sizeof *files };

/* The path of a picture in the folder; the caller frees it. */
static tr_status path_of(const tri_cli *cli, const char *name, char **path, tr_error *err)
{
    char file[32];
    snprintf(file, sizeof file, "%s.svg", name);
    *path = tri_path_join(tri_cli_flag(cli, "draw"), file);
    return *path ? TR_OK : tri_fail(err, TR_ERROR_RUNTIME, "no memory for a path");
}

static tr_status may_write(const tri_cli *cli, const struct picture_file *file, tr_error *err)
{
    char *path;
    TRI_TRY(path_of(cli, file->name, &path, err));
    tr_status status = tri_check_output(path, true, err);
    if (status == TR_OK && tri_path_exists(path))
        status = tri_svg_may_replace(path, file->mark, file->by, err);
    free(path);
    return status;
}

tr_status tri_plan_search_may_draw(const tri_cli *cli, tr_error *err)
{
    const char *dir = tri_cli_flag(cli, "draw");
    size_t length = dir ? strlen(dir) : 0;
    if (!dir)
        return TR_OK;
    bool is_dir = tri_path_is_dir(dir);
    if (!*dir || (!is_dir &&
                  (tri_path_exists(dir) || (length >= 4 && strcmp(dir + length - 4, ".svg") == 0))))
        return tri_fail(err, TR_ERROR_INPUT,
                        "--draw \"%.200s\": the pictures of a search are files in a folder; name "
                        "a folder, which is made where it is missing",
                        dir);
    for (int i = 0; i < NUM_FILES; i++)
        TRI_TRY(may_write(cli, &files[i], err));
    return TR_OK;
}

/* ---- writing ---- */

static tr_status write_picture(const tri_plan_search *p, const char *name, const tri_text *text,
                               tr_error *err)
{
    char *path;
    if (text->failed)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for the pictures");
    TRI_TRY(path_of(p->cli, name, &path, err));
    tr_status status = tri_file_replace(path, text->chars, text->length, err);
    if (status == TR_OK)
        tri_text_print(tri_cli_flag(p->cli, "json") ? stderr : stdout, "written: %s\n", path);
    free(path);
    return status;
}

static tr_status write_found(const tri_plan_search *p, const tri_search_picture *of, tr_error *err)
{
    void (*const draw[])(const tri_search_picture *, tri_text *) = {tri_heatmap_draw, tri_best_draw,
                                                                    tri_pareto_draw};
    tr_status status = TR_OK;
    for (int i = 0; i < 3 && status == TR_OK; i++) {
        tri_text text;
        tri_text_init(&text);
        draw[i](of, &text);
        status = write_picture(p, files[i].name, &text, err);
        tri_text_fini(&text);
    }
    return status;
}

static void title_of(const tri_plan_search *p, const tri_search_picture *of, tri_text *title)
{
    tri_text_init(title);
    tri_text_add(title, "%s on %u x %s: ", of->model, p->of.machine.devices, of->device);
    tri_choice_text(&p->found.results[p->found.best[0]].choice, title);
}

static tr_status write_winner(const tri_plan_search *p, const tri_search_picture *of, tr_error *err)
{
    static const tri_picture_kind kinds[] = {TRI_PICTURE_MEMORY, TRI_PICTURE_TIMELINE,
                                             TRI_PICTURE_UTILISATION};
    bool wanted[TRI_NUM_PICTURES] = {0};
    tri_text text[TRI_NUM_PICTURES], title;
    title_of(p, of, &title);
    for (int k = 0; k < TRI_NUM_PICTURES; k++)
        tri_text_init(&text[k]);
    for (int i = 0; i < 3; i++)
        wanted[kinds[i]] = true;
    tr_status status = title.failed
                           ? tri_fail(err, TR_ERROR_RUNTIME, "no memory for the pictures")
                           : tri_plan_search_draw_winner(p, title.chars, wanted, text, err);
    for (int i = 0; i < 3 && status == TR_OK; i++)
        status = write_picture(p, tri_picture_name(kinds[i]), &text[kinds[i]], err);
    for (int k = 0; k < TRI_NUM_PICTURES; k++)
        tri_text_fini(&text[k]);
    tri_text_fini(&title);
    return status;
}

static tr_status write_scaling(tri_plan_search *p, const tri_search_picture *of, tr_error *err)
{
    tri_scaling_point points[TRI_PLAN_SEARCH_SIZES];
    size_t num;
    tri_text text;
    tr_status status = tri_plan_search_scaling(p, points, &num, err);
    if (p->told) /* the line of progress */
        fprintf(stderr, "\r\033[K");
    p->told = false;
    TRI_TRY(status);
    tri_text_init(&text);
    tri_scaling_draw(of, points, num, &text);
    status = write_picture(p, "scaling", &text, err);
    tri_text_fini(&text);
    return status;
}

tr_status tri_plan_search_draw(tri_plan_search *p, tr_error *err)
{
    const char *dir = tri_cli_flag(p->cli, "draw");
    const char *preset = tr_settings_string(p->settings, "model.preset");
    char device[200];
    if (!dir || p->found.num_best == 0)
        return TR_OK;
    if (p->is_measured)
        snprintf(device, sizeof device, "%.100s (measured)", p->profile.device);
    else
        tri_sim_machine_title(&p->machine, device, sizeof device);
    const tri_search_picture of = {.search = &p->found,
                                   .machine = &p->of.machine,
                                   .model = *preset ? preset
                                                    : tr_settings_string(p->settings, "model.kind"),
                                   .device = device};
    TRI_TRY(tri_make_dirs(dir, err));
    TRI_TRY(write_found(p, &of, err));
    TRI_TRY(write_winner(p, &of, err));
    return write_scaling(p, &of, err);
}
