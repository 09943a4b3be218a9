/* trireme sim FILE.yaml --device NAME --draw: the timeline of the step, or all of its pictures in a
 * folder. A picture replaces an older one of ours, and no other file. */
#include <stdlib.h>
#include <string.h>

#include "base/draw/svg.h"
#include "base/fs.h"
#include "cli/sim/verb_sim_model.h"
#include "sim/picture/picture.h"

static bool is_file(const char *path)
{
    size_t length = strlen(path);
    return length >= 4 && strcmp(path + length - 4, ".svg") == 0;
}

/* The path of a picture in the folder; the caller frees it. */
static tr_status path_of(const char *dir, const char *name, char **path, tr_error *err)
{
    tri_text file;
    tri_text_init(&file);
    tri_text_add(&file, "%s.svg", name);
    *path = file.failed ? NULL : tri_path_join(dir, file.chars);
    tri_text_fini(&file);
    return *path ? TR_OK : tri_fail(err, TR_ERROR_RUNTIME, "no memory for a path");
}

/* Names of the pictures of a folder, the last one of the pipeline alone; NULL past the end. */
static const char *name_at(int n)
{
    return n < TRI_NUM_PICTURES    ? tri_picture_name((tri_picture_kind)n)
           : n == TRI_NUM_PICTURES ? "pipeline"
                                   : NULL;
}

static tr_status may_draw(const char *dir, const char *name, tr_error *err)
{
    char *path;
    TRI_TRY(path_of(dir, name, &path, err));
    tr_status status = tri_path_exists(path)
                           ? tri_svg_may_replace(path, TRI_PICTURE_MARK, "trireme sim", err)
                           : TR_OK;
    free(path);
    return status;
}

tr_status tri_model_sim_may_draw(const tri_cli *cli, tr_error *err)
{
    const char *path = tri_cli_flag(cli, "draw");
    if (!path)
        return TR_OK;
    if (is_file(path))
        return tri_svg_may_replace(path, TRI_PICTURE_MARK, "trireme sim", err);
    if (tri_path_exists(path) && !tri_path_is_dir(path))
        return tri_fail(err, TR_ERROR_INPUT,
                        "%s is a file; give --draw a folder, or a name that ends in .svg for the "
                        "timeline alone",
                        path);
    for (int n = 0; name_at(n); n++)
        TRI_TRY(may_draw(path, name_at(n), err));
    return TR_OK;
}

static tr_status write_picture(const tri_cli *cli, const char *path, const tri_text *text,
                               tr_error *err)
{
    TRI_TRY(tri_file_replace(path, text->chars, text->length, err));
    if (!tri_cli_flag(cli, "json"))
        tri_text_print(stdout, "written: %s\n", path);
    return TR_OK;
}

static tr_status write_in(const tri_cli *cli, const char *name, const tri_text *text, tr_error *err)
{
    char *path;
    TRI_TRY(path_of(tri_cli_flag(cli, "draw"), name, &path, err));
    tr_status status = write_picture(cli, path, text, err);
    free(path);
    return status;
}

/* The pipeline as trireme sim --schedule and --trace draw it, to be put beside those. */
static tr_status write_pipeline(const tri_model_sim *m, tr_error *err)
{
    tri_text text;
    if (!m->stages.pipeline.exists)
        return TR_OK;
    tri_text_init(&text);
    tri_text_add(&text, TRI_PICTURE_MARK "\n");
    tr_status status = tri_sim_draw_svg(&m->schedule.sim, m->title, &text, err);
    if (status == TR_OK)
        status = write_in(m->cli, name_at(TRI_NUM_PICTURES), &text, err);
    else if (status == TR_ERROR_INPUT) { /* too many actions for it; the others are there */
        tri_text_print(stderr, "pipeline.svg is left out: %s\n", err->message);
        status = TR_OK;
    }
    tri_text_fini(&text);
    return status;
}

static tr_status write_all(const tri_model_sim *m, const bool wanted[TRI_NUM_PICTURES],
                           tri_text text[TRI_NUM_PICTURES], tr_error *err)
{
    const char *path = tri_cli_flag(m->cli, "draw");
    const tri_device *device = &m->stages.sessions[0]->device;
    const tri_sim_machine *machine = &m->machine;
    const tri_picture_case c = {.step = &m->of_step,
                                .sim = &m->step,
                                .title = m->title,
                                .device = tri_sim_machine_device(machine),
                                .rate = machine->rate,
                                .share = machine->by_datasheet ? machine->roofline.efficiency : 0,
                                .with_host = tri_device_shares_host(device->def)};
    TRI_TRY(tri_pictures_draw(&c, wanted, text, err));
    if (is_file(path))
        return write_picture(m->cli, path, &text[TRI_PICTURE_TIMELINE], err);
    TRI_TRY(tri_make_dirs(path, err));
    for (int k = 0; k < TRI_NUM_PICTURES; k++)
        TRI_TRY(write_in(m->cli, name_at(k), &text[k], err));
    return write_pipeline(m, err);
}

tr_status tri_model_sim_draw(const tri_model_sim *m, tr_error *err)
{
    tri_text text[TRI_NUM_PICTURES];
    bool wanted[TRI_NUM_PICTURES], alone = is_file(tri_cli_flag(m->cli, "draw"));
    for (int k = 0; k < TRI_NUM_PICTURES; k++) {
        wanted[k] = k == TRI_PICTURE_TIMELINE || !alone;
        tri_text_init(&text[k]);
    }
    tr_status status = write_all(m, wanted, text, err);
    for (int k = 0; k < TRI_NUM_PICTURES; k++)
        tri_text_fini(&text[k]);
    return status;
}
