/* Programs of the layout that an address asks for. The settings are made as those of a command that
 * was typed, so an answer is what `trireme explain FILE --set layout.dp=2` shows; the newest layout
 * stays compiled. */
#include <stdlib.h>
#include <string.h>

#include "cli/recipe.h"
#include "cli/view/view_parts.h"
#include "schedule/schedule.h"

typedef struct layout_key {
    const char *key, *setting;
    int64_t least, most;
} layout_key;

static const layout_key keys[] = {
    {"dp", "layout.dp", 1, TRI_VIEW_RANKS},
    {"cp", "layout.cp", 1, TRI_VIEW_RANKS},
    {"tp", "layout.tp", 1, TRI_VIEW_RANKS},
    {"pp", "layout.pp", 1, TRI_VIEW_RANKS},
    {"ep", "layout.ep", 1, TRI_VIEW_RANKS},
    {"zero", "layout.zero", 0, 3},
    {"sp", "layout.sp", 0, 1},
    {"microbatches", "layout.microbatches", 1, TRI_VIEW_MICROBATCHES},
    {"batch", "train.batch", 1, 4096},
};

static const char *order_name_at(size_t i)
{
    return tri_order_at(i) ? tri_order_at(i)->name : NULL;
}

/* ---- the words of a command ---- */

/* One behind the other, each with a byte of 0; num of them. */
typedef struct word_row {
    tri_text text;
    int num;
} word_row;

static void add_word(word_row *row, const char *word)
{
    tri_text_add_bytes(&row->text, word, strlen(word) + 1);
    row->num++;
}

static void add_setting(word_row *row, const char *setting, const char *value)
{
    tri_text word;
    tri_text_init(&word);
    tri_text_add(&word, "%s=%s", setting, value);
    add_word(row, "--set");
    add_word(row, word.failed ? "" : word.chars);
    row->text.failed |= word.failed;
    tri_text_fini(&word);
}

typedef struct recipe_wanted {
    const char *name;
    bool found;
} recipe_wanted;

static void look_at_recipe(void *context, const char *name)
{
    recipe_wanted *search = context;
    search->found |= strcmp(search->name, name) == 0;
}

/* The file that was typed, or a recipe by a name of the list: an address opens nothing else. */
static tr_status add_file(const tri_view *view, const char *recipe, word_row *row, tr_error *err)
{
    recipe_wanted search = {recipe, false};
    if (!recipe || !*recipe) {
        if (view->cli->num_operands > 0)
            add_word(row, view->cli->operands[0]);
        return TR_OK;
    }
    tri_recipes_list(look_at_recipe, &search);
    if (!search.found)
        return tri_fail(err, TR_ERROR_INPUT,
                        "there is no recipe \"%.60s\"; /api/view/mesh lists them", recipe);
    add_word(row, recipe);
    return TR_OK;
}

static tr_status add_layout(const tri_http_target *query, word_row *row, tr_error *err)
{
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const char *text = tri_http_target_arg(query, keys[i].key);
        int64_t value = -1;
        char number[24];
        TRI_TRY(tri_view_query_int(query, keys[i].key, keys[i].least, keys[i].most, &value, err));
        if (!text || !*text)
            continue;
        snprintf(number, sizeof number, "%lld", (long long)value);
        bool is_flag = strcmp(keys[i].key, "sp") == 0;
        add_setting(row, keys[i].setting, !is_flag ? number : value ? "true" : "false");
    }
    const char *order = tri_http_target_arg(query, "schedule");
    if (!order || !*order)
        return TR_OK;
    if (!tri_order_find(order)) /* csv:FILE too: an address names no file */
        return tri_view_query_unknown("schedule", order, order_name_at, err);
    add_setting(row, "layout.schedule", order);
    return TR_OK;
}

static tr_status add_words(const tri_view *view, const tri_http_target *query, word_row *row,
                           tr_error *err)
{
    const char *recipe = tri_http_target_arg(query, "recipe");
    TRI_TRY(add_file(view, recipe, row, err));
    for (int i = 0; i < view->cli->num_plugins; i++) {
        add_word(row, "--plugin");
        add_word(row, view->cli->plugins[i]);
    }
    for (int i = 0; i < view->cli->num_assignments; i++) {
        add_word(row, "--set");
        add_word(row, view->cli->assignments[i]);
    }
    TRI_TRY(add_layout(query, row, err));
    return row->text.failed ? tri_fail(err, TR_ERROR_RUNTIME, "no memory for a layout") : TR_OK;
}

/* ---- the layout ---- */

void tri_view_layout_fini(tri_view_layout *layout)
{
    for (int r = 0; r < TRI_VIEW_RANKS; r++)
        tr_session_destroy(layout->session[r]);
    if (layout->words)
        tri_cli_fini(&layout->cli);
    free(layout->words);
    *layout = (tri_view_layout){0};
}

static tr_status open_layout(tri_view *view, const word_row *row, tri_view_layout *layout,
                             tr_error *err)
{
    char **args = calloc((size_t)row->num + 1, sizeof *args);
    layout->words = calloc(row->text.length + 1, 1);
    tr_status status = TR_OK;
    if (!args || !layout->words)
        status = tri_fail(err, TR_ERROR_RUNTIME, "no memory for a layout");
    char *at = layout->words;
    if (status == TR_OK && row->text.length > 0)
        memcpy(layout->words, row->text.chars, row->text.length);
    for (int i = 0; i < row->num && status == TR_OK; i++, at += strlen(at) + 1)
        args[i] = at;
    if (status == TR_OK)
        status = tri_cli_init(&layout->cli, view->cli->verb, row->num, args, err);
    free(args);
    if (status == TR_OK)
        return TR_OK;
    free(layout->words);
    layout->words = NULL;
    return status;
}

static tr_status count_ranks(tri_view_layout *layout, tr_error *err)
{
    int64_t num = tri_cli_num_ranks(&layout->cli);
    TRI_TRY(tri_cli_check_rank(&layout->cli, 0, err));
    if (num > TRI_VIEW_RANKS)
        return tri_fail(err, TR_ERROR_INPUT,
                        "this layout has %lld ranks; a picture has at most %d: make dp, cp, tp or "
                        "pp smaller",
                        (long long)num, TRI_VIEW_RANKS);
    layout->num_ranks = (int)num;
    return TR_OK;
}

static bool same_words(const tri_view_layout *layout, const word_row *row)
{
    if (!layout->words)
        return false;
    size_t length = 0;
    const char *at = layout->words;
    for (; *at; at += strlen(at) + 1)
        length += strlen(at) + 1;
    return length == row->text.length &&
           (length == 0 || memcmp(layout->words, row->text.chars, length) == 0);
}

tr_status tri_view_layout_of(tri_view *view, const tri_http_target *query, tri_view_layout **layout,
                             tr_error *err)
{
    word_row row = {.num = 0};
    tri_text_init(&row.text);
    *layout = &view->layout;
    tr_status status = add_words(view, query, &row, err);
    if (status == TR_OK && !same_words(&view->layout, &row)) {
        tri_view_layout_fini(&view->layout);
        status = open_layout(view, &row, &view->layout, err);
        if (status == TR_OK)
            status = count_ranks(&view->layout, err);
        if (status != TR_OK)
            tri_view_layout_fini(&view->layout);
    }
    tri_text_fini(&row.text);
    return status;
}

tr_status tri_view_compile(tri_view_layout *layout, int rank, const tri_session **session,
                           tr_error *err)
{
    if (!layout->session[rank])
        TRI_TRY(tri_api_compile_programs(layout->cli.settings, rank, TRI_PROGRAMS_TRAIN, NULL,
                                         &layout->session[rank], err));
    *session = &layout->session[rank]->session;
    return TR_OK;
}

tr_status tri_view_compile_all(tri_view_layout *layout, tr_error *err)
{
    size_t total = 0;
    for (int r = 0; r < layout->num_ranks && !layout->all; r++) {
        const tri_session *session;
        TRI_TRY(tri_view_compile(layout, r, &session, err));
        total += session->programs[TRI_PROGRAM_TRAIN].num_instrs;
        if (total * (size_t)layout->num_ranks / (size_t)(r + 1) > TRI_VIEW_INSTRUCTIONS)
            return tri_fail(err, TR_ERROR_INPUT,
                            "the programs of these %d ranks have more than %d instructions "
                            "together, too many for a picture: take fewer ranks, or fewer layers",
                            layout->num_ranks, TRI_VIEW_INSTRUCTIONS);
    }
    layout->all = true;
    return TR_OK;
}

/* ---- what there is to choose from ---- */

static void put_recipe(void *context, const char *name)
{
    tri_doc_text_item(context, name);
}

void tri_view_put_recipes(const tri_view *view, json_t *doc)
{
    tri_recipes_list(put_recipe, tri_doc_list(doc, "recipes"));
    tri_doc_text(doc, "file", view->cli->num_operands > 0 ? view->cli->operands[0] : NULL);
}
