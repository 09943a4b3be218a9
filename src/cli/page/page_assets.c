/* The assembler copies each file into the program; the Makefile knows that they belong to it. */
#include <string.h>

#include "cli/page/page_assets.h"

#define ASSET(id, path)                                                                            \
    extern const unsigned char tri_asset_##id[] __attribute__((visibility("hidden")));             \
    extern const unsigned char tri_asset_##id##_end[] __attribute__((visibility("hidden")));       \
    __asm__(".pushsection .rodata\n"                                                               \
            "tri_asset_" #id ":\n"                                                                 \
            ".incbin \"src/cli/" path "\"\n"                                                       \
            "tri_asset_" #id "_end:\n"                                                             \
            ".byte 0\n"                                                                            \
            ".popsection\n")

ASSET(index, "page/index.html");
ASSET(style, "page/page.css");
ASSET(icon, "page/icon.svg");
ASSET(view_page, "page/view.html");
ASSET(view_style, "page/view.css");
ASSET(view_frame, "page/view.js");
ASSET(view_canvas, "page/view_canvas.js");
ASSET(view_schedule, "page/view_schedule.js");
ASSET(view_schedule_draw, "page/view_schedule_draw.js");
ASSET(view_mesh, "page/view_mesh.js");
ASSET(view_collective, "page/view_collective.js");
ASSET(view_collective_draw, "page/view_collective_draw.js");
ASSET(view_program, "page/view_program.js");
ASSET(view_program_list, "page/view_program_list.js");
ASSET(view_start, "page/view_start.js");
ASSET(theme, "page/theme.js");
ASSET(base, "page/base.js");
ASSET(data, "page/data.js");
ASSET(state, "page/state.js");
ASSET(store, "page/store.js");
ASSET(canvas, "page/canvas.js");
ASSET(runs, "page/runs.js");
ASSET(chart, "page/chart.js");
ASSET(curves, "page/curves.js");
ASSET(differ, "page/differ.js");
ASSET(ranks, "page/ranks.js");
ASSET(details, "page/details.js");
ASSET(trace, "page/trace.js");
ASSET(map, "page/map.js");
ASSET(live, "page/live.js");
ASSET(main, "page/main.js");

#define HTML   "text/html; charset=utf-8"
#define CSS    "text/css; charset=utf-8"
#define SCRIPT "text/javascript; charset=utf-8"
#define SVG    "image/svg+xml"

static const struct {
    const char *name, *type;
    const unsigned char *bytes, *end;
} assets[] = {
    {"index.html", HTML, tri_asset_index, tri_asset_index_end},
    {"page.css", CSS, tri_asset_style, tri_asset_style_end},
    {"icon.svg", SVG, tri_asset_icon, tri_asset_icon_end},
    {"view.html", HTML, tri_asset_view_page, tri_asset_view_page_end},
    {"view.css", CSS, tri_asset_view_style, tri_asset_view_style_end},
    {"view.js", SCRIPT, tri_asset_view_frame, tri_asset_view_frame_end},
    {"view_canvas.js", SCRIPT, tri_asset_view_canvas, tri_asset_view_canvas_end},
    {"view_schedule.js", SCRIPT, tri_asset_view_schedule, tri_asset_view_schedule_end},
    {"view_schedule_draw.js", SCRIPT, tri_asset_view_schedule_draw,
     tri_asset_view_schedule_draw_end},
    {"view_mesh.js", SCRIPT, tri_asset_view_mesh, tri_asset_view_mesh_end},
    {"view_collective.js", SCRIPT, tri_asset_view_collective, tri_asset_view_collective_end},
    {"view_collective_draw.js", SCRIPT, tri_asset_view_collective_draw,
     tri_asset_view_collective_draw_end},
    {"view_program.js", SCRIPT, tri_asset_view_program, tri_asset_view_program_end},
    {"view_program_list.js", SCRIPT, tri_asset_view_program_list, tri_asset_view_program_list_end},
    {"view_start.js", SCRIPT, tri_asset_view_start, tri_asset_view_start_end},
    {"theme.js", SCRIPT, tri_asset_theme, tri_asset_theme_end},
    {"base.js", SCRIPT, tri_asset_base, tri_asset_base_end},
    {"data.js", SCRIPT, tri_asset_data, tri_asset_data_end},
    {"state.js", SCRIPT, tri_asset_state, tri_asset_state_end},
    {"store.js", SCRIPT, tri_asset_store, tri_asset_store_end},
    {"canvas.js", SCRIPT, tri_asset_canvas, tri_asset_canvas_end},
    {"runs.js", SCRIPT, tri_asset_runs, tri_asset_runs_end},
    {"chart.js", SCRIPT, tri_asset_chart, tri_asset_chart_end},
    {"curves.js", SCRIPT, tri_asset_curves, tri_asset_curves_end},
    {"differ.js", SCRIPT, tri_asset_differ, tri_asset_differ_end},
    {"ranks.js", SCRIPT, tri_asset_ranks, tri_asset_ranks_end},
    {"details.js", SCRIPT, tri_asset_details, tri_asset_details_end},
    {"trace.js", SCRIPT, tri_asset_trace, tri_asset_trace_end},
    {"map.js", SCRIPT, tri_asset_map, tri_asset_map_end},
    {"live.js", SCRIPT, tri_asset_live, tri_asset_live_end},
    {"main.js", SCRIPT, tri_asset_main, tri_asset_main_end},
};

bool tri_page_asset(const char *name, const void **bytes, size_t *num_bytes, const char **type)
{
    for (size_t i = 0; i < sizeof assets / sizeof *assets; i++)
        if (strcmp(assets[i].name, name) == 0) {
            *bytes = assets[i].bytes;
            *num_bytes = (size_t)(assets[i].end - assets[i].bytes);
            *type = assets[i].type;
            return true;
        }
    return false;
}
