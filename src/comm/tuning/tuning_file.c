/* The list "comm" of tuning.json: what was measured, an entry for each transport, number of ranks
 * and of machines. */
#include "comm/tuning/tuning.h"

#include <string.h>

#include "base/tuning_json.h"

static bool is_entry(const json_t *entry, const tri_tuning *tuning)
{
    const char *transport = json_string_value(json_object_get(entry, "transport"));
    return transport && strcmp(transport, tuning->transport) == 0 &&
           json_integer_value(json_object_get(entry, "ranks")) == tuning->num_ranks &&
           json_integer_value(json_object_get(entry, "machines")) == tuning->num_machines;
}

static bool read_prices(const json_t *entry, const char *name, tri_coll_prices *prices)
{
    const json_t *p = json_object_get(entry, name);
    prices->alpha = json_number_value(json_object_get(p, "alpha_s"));
    prices->beta = json_number_value(json_object_get(p, "beta_s_per_byte"));
    prices->gamma = json_number_value(json_object_get(p, "gamma_s_per_byte"));
    return prices->alpha >= 0 && prices->beta > 0 && prices->gamma >= 0 && prices->alpha < 1e3 &&
           prices->beta < 1 && prices->gamma < 1;
}

/* ---- the work of a call (collective/work.h) ---- */

static const char *const kind_names[TRI_NUM_WORK] = {"copy",    "pack", "move", "pull",
                                                     "combine", "read", "term", "write"};

static bool read_numbers(const json_t *list, int num, double least, double *out)
{
    if (json_array_size(list) != (size_t)num)
        return false;
    for (int i = 0; i < num; i++) {
        out[i] = json_number_value(json_array_get(list, (size_t)i));
        if (!(out[i] >= least && out[i] < 1e15))
            return false;
    }
    return true;
}

static bool read_seconds(const json_t *object, const char *name, double *seconds)
{
    *seconds = json_number_value(json_object_get(object, name));
    return *seconds >= 0 && *seconds < 1e3;
}

/* As below: none in a file from before. */
static bool read_packet(const json_t *object, tri_work_prices *w)
{
    w->packet_bytes = json_number_value(json_object_get(object, "packet_bytes"));
    return w->packet_bytes >= 0 && w->packet_bytes < 1e15 && read_seconds(object, "cut_s", &w->cut);
}

/* A file from before there was such a thing has none, and is right as it is. */
static bool read_work(const json_t *entry, tri_work_prices *w)
{
    const json_t *object = json_object_get(entry, "work"), *kind;
    const json_t *footprint = json_object_get(object, "footprint_bytes");
    *w = (tri_work_prices){0};
    if (object == NULL)
        return true;
    w->num_cores = (int)json_integer_value(json_object_get(object, "cores"));
    w->sender = json_number_value(json_object_get(object, "sender_share"));
    w->num_points = (int)json_array_size(footprint);
    bool good = w->num_points >= 1 && w->num_points <= TRI_WORK_POINTS && w->num_cores >= 1 &&
                w->sender >= 0 && w->sender <= 1 && read_seconds(object, "call_s", &w->call) &&
                read_seconds(object, "message_s", &w->message) && read_packet(object, w) &&
                read_numbers(footprint, w->num_points, 1, w->footprint) &&
                read_numbers(json_object_get(object, "round_s"), w->num_points, 0, w->round);
    for (int k = 1; good && k < w->num_points; k++)
        good = w->footprint[k] > w->footprint[k - 1];
    for (int i = 0; good && i < TRI_NUM_WORK; i++) {
        kind = json_object_get(object, kind_names[i]);
        good =
            read_numbers(json_object_get(kind, "all_s_per_byte"), w->num_points, 0, w->all[i]) &&
            read_numbers(json_object_get(kind, "alone_s_per_byte"), w->num_points, 0, w->alone[i]);
    }
    return good;
}

/* ---- factors (tuning_factors.h): for each operation that was tried its sizes, and a list for each
 * algorithm ---- */

static bool read_tried(const json_t *tried, tri_coll coll, tri_factors *f)
{
    const char *name;
    json_t *list, *bytes = json_object_get(tried, "bytes");
    int num = (int)json_array_size(bytes);
    bool good = num >= 1 && num <= TRI_FACTOR_POINTS && read_numbers(bytes, num, 1, f->bytes[coll]);
    for (int k = 0; good && k < num; k++)
        good = tri_is_call_size(f->bytes[coll][k]) &&
               (k == 0 || f->bytes[coll][k] > f->bytes[coll][k - 1]);
    f->num_points[coll] = num;
    json_object_foreach((json_t *)(uintptr_t)tried, name, list)
    {
        const tri_algorithm *algorithm = tri_algorithm_find(name);
        int number = algorithm ? tri_algorithm_number(algorithm) : TRI_FACTOR_ALGORITHMS;
        good = good && (list == bytes || (number < TRI_FACTOR_ALGORITHMS &&
                                          read_numbers(list, num, 1e-4, f->of[coll][number])));
    }
    return good;
}

/* Files from before have none, or those of sizes that all operations share: then it is as if
 * nothing had been tried. */
static bool read_factors(const json_t *entry, tri_factors *f)
{
    const json_t *object = json_object_get(entry, "factors"), *tried;
    bool good = true;
    *f = (tri_factors){0};
    for (int c = 0; json_object_get(object, "bytes") == NULL && c < TRI_NUM_COLLS; c++)
        if ((tried = json_object_get(object, tri_coll_name((tri_coll)c))) != NULL)
            good = good && read_tried(tried, (tri_coll)c, f);
    return good;
}

static json_t *numbers_json(const double *numbers, int num)
{
    json_t *list = json_array();
    for (int i = 0; i < num; i++)
        json_array_append_new(list, json_real(numbers[i]));
    return list;
}

static json_t *work_json(const tri_work_prices *w)
{
    json_t *object = json_pack("{s:i, s:f, s:f, s:f, s:f, s:f, s:o, s:o}", "cores", w->num_cores,
                               "call_s", w->call, "message_s", w->message, "packet_bytes",
                               w->packet_bytes, "cut_s", w->cut, "sender_share", w->sender,
                               "footprint_bytes", numbers_json(w->footprint, w->num_points),
                               "round_s", numbers_json(w->round, w->num_points));
    for (int i = 0; i < TRI_NUM_WORK; i++)
        json_object_set_new(object, kind_names[i],
                            json_pack("{s:o, s:o}", "all_s_per_byte",
                                      numbers_json(w->all[i], w->num_points), "alone_s_per_byte",
                                      numbers_json(w->alone[i], w->num_points)));
    return object;
}

static json_t *factors_json(const tri_factors *f)
{
    json_t *object = json_object();
    for (int c = 0; c < TRI_NUM_COLLS; c++) {
        int num = f->num_points[c];
        if (num == 0)
            continue;
        json_t *tried = json_pack("{s:o}", "bytes", numbers_json(f->bytes[c], num));
        for (int a = 0; a < TRI_FACTOR_ALGORITHMS && tri_algorithm_at((size_t)a) != NULL; a++)
            if (f->of[c][a][0] > 0)
                json_object_set_new(tried, tri_algorithm_at((size_t)a)->name,
                                    numbers_json(f->of[c][a], num));
        json_object_set_new(object, tri_coll_name((tri_coll)c), tried);
    }
    return object;
}

tr_status tri_tuning_load(const char *path, tri_tuning *tuning, bool *found, tr_error *err)
{
    json_t *object, *entry;
    size_t i;
    *found = false;
    TRI_TRY(tri_tuning_json_read(path, &object, err));
    tr_status status = TR_OK;
    json_array_foreach(json_object_get(object, "comm"), i, entry)
    {
        if (!is_entry(entry, tuning))
            continue;
        *found = read_prices(entry, "near", &tuning->near) &&
                 read_prices(entry, "far", &tuning->far) &&
                 read_prices(entry, "shared", &tuning->shared) && read_work(entry, &tuning->work) &&
                 read_factors(entry, &tuning->factors);
        tuning->measured = *found;
        if (!*found)
            status = tri_fail(err, TR_ERROR_INPUT,
                              "%s: entry %zu of \"comm\" has no sensible prices; delete the file, "
                              "and it is measured anew",
                              path, i);
        break;
    }
    json_decref(object);
    return status;
}

static json_t *prices_json(const tri_coll_prices *p)
{
    return json_pack("{s:f, s:f, s:f}", "alpha_s", p->alpha, "beta_s_per_byte", p->beta,
                     "gamma_s_per_byte", p->gamma);
}

static bool put_entry(json_t *list, const void *tuning)
{
    const tri_tuning *t = tuning;
    json_t *old;
    size_t i;
    json_array_foreach(list, i, old)
    {
        if (is_entry(old, t)) {
            json_array_remove(list, i);
            break;
        }
    }
    json_t *entry =
        json_pack("{s:s, s:i, s:i, s:o, s:o, s:o}", "transport", t->transport, "ranks",
                  t->num_ranks, "machines", t->num_machines, "near", prices_json(&t->near), "far",
                  prices_json(&t->far), "shared", prices_json(&t->shared));
    if (t->work.num_points > 0)
        json_object_set_new(entry, "work", work_json(&t->work));
    json_object_set_new(entry, "factors", factors_json(&t->factors));
    json_array_append_new(list, entry);
    return true;
}

tr_status tri_tuning_save(const char *path, const tri_tuning *tuning, tr_error *err)
{
    return tri_tuning_json_change(path, "comm", put_entry, tuning, err);
}
