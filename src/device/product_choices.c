#include "device/product_choices.h"

#include <stdlib.h>
#include <string.h>

#include "base/tuning_json.h"

static const char list_name[] = "products";

static const char *const number_names[TRI_PRODUCT_NUMBERS] = {
    "id", "tile", "stages", "split_k", "reduction", "swizzle", "variant", "inner", "cluster"};

static const char *const epilogue_names[] = {
    [TRI_EPILOGUE_NONE] = "none",
    [TRI_EPILOGUE_BIAS] = "bias",
    [TRI_EPILOGUE_BIAS_GELU] = "bias_gelu",
    [TRI_EPILOGUE_GELU_GRAD] = "gelu_grad",
    [TRI_EPILOGUE_ADD] = "add",
};
enum { NUM_EPILOGUES = sizeof epilogue_names / sizeof *epilogue_names };

/* ---- in memory ---- */

static bool same_key(const tri_product_key *a, const tri_product_key *b)
{
    return a->m == b->m && a->n == b->n && a->k == b->k && a->trans_a == b->trans_a &&
           a->trans_b == b->trans_b && a->fast_sum == b->fast_sum && a->in == b->in &&
           a->in_b == b->in_b && a->out == b->out && a->epilogue == b->epilogue;
}

const tri_product_choice *tri_product_choices_find(const tri_product_choices *choices,
                                                   const tri_product_key *key)
{
    for (size_t i = 0; i < choices->num; i++)
        if (same_key(&choices->all[i].key, key))
            return &choices->all[i];
    return NULL;
}

static tri_product_choice *room_for(tri_product_choices *choices, const tri_product_key *key)
{
    for (size_t i = 0; i < choices->num; i++)
        if (same_key(&choices->all[i].key, key))
            return &choices->all[i];
    if (choices->num == choices->capacity) {
        size_t capacity = choices->capacity ? 2 * choices->capacity : 32;
        tri_product_choice *all = realloc(choices->all, capacity * sizeof *all);
        if (!all)
            return NULL;
        choices->all = all;
        choices->capacity = capacity;
    }
    choices->all[choices->num] = (tri_product_choice){0};
    return &choices->all[choices->num++];
}

bool tri_product_choices_put(tri_product_choices *choices, const tri_product_choice *choice)
{
    bool replaces = tri_product_choices_find(choices, &choice->key) != NULL;
    tri_product_choice *to = room_for(choices, &choice->key);
    if (!to)
        return false;
    *to = *choice;
    to->is_new = true;
    to->replaces = replaces;
    return true;
}

void tri_product_choices_fini(tri_product_choices *choices)
{
    free(choices->all);
    *choices = (tri_product_choices){0};
}

/* ---- in the file ---- */

static bool is_ours(const tri_product_choices *choices, const json_t *entry)
{
    const char *gpu = json_string_value(json_object_get(entry, "gpu"));
    return gpu && strcmp(gpu, choices->gpu) == 0 &&
           json_integer_value(json_object_get(entry, "cublaslt")) == choices->library;
}

static bool read_size(const json_t *entry, const char *name, int64_t *size)
{
    *size = json_integer_value(json_object_get(entry, name));
    return *size > 0;
}

static bool read_type(const json_t *entry, const char *name, tri_dtype *dtype)
{
    const char *text = json_string_value(json_object_get(entry, name));
    for (int d = 0; text && d < TRI_NUM_DTYPES; d++)
        if (strcmp(text, tri_dtype_name((tri_dtype)d)) == 0) {
            *dtype = (tri_dtype)d;
            return true;
        }
    return false;
}

static bool read_epilogue(const json_t *entry, tri_epilogue *epilogue)
{
    const char *text = json_string_value(json_object_get(entry, "epilogue"));
    for (int e = 0; text && e < NUM_EPILOGUES; e++)
        if (strcmp(text, epilogue_names[e]) == 0) {
            *epilogue = (tri_epilogue)e;
            return true;
        }
    return false;
}

static bool read_key(const json_t *entry, tri_product_key *key)
{
    key->trans_a = json_is_true(json_object_get(entry, "transposed_a"));
    key->trans_b = json_is_true(json_object_get(entry, "transposed_b"));
    key->fast_sum = json_is_true(json_object_get(entry, "fast_sum"));
    return read_size(entry, "m", &key->m) && read_size(entry, "n", &key->n) &&
           read_size(entry, "k", &key->k) && read_type(entry, "a", &key->in) &&
           read_type(entry, "b", &key->in_b) && read_type(entry, "c", &key->out) &&
           read_epilogue(entry, &key->epilogue);
}

static bool read_choice(const json_t *entry, tri_product_choice *choice)
{
    const json_t *algorithm = json_object_get(entry, "algorithm");
    *choice = (tri_product_choice){.apart = json_is_true(json_object_get(entry, "apart"))};
    choice->seconds = json_number_value(json_object_get(entry, "seconds"));
    choice->first_seconds = json_number_value(json_object_get(entry, "first_seconds"));
    bool good = read_key(entry, &choice->key);
    for (int i = 0; good && !choice->apart && i < TRI_PRODUCT_NUMBERS; i++) {
        const json_t *number = json_object_get(algorithm, number_names[i]);
        choice->number[i] = json_integer_value(number);
        good = json_is_integer(number) && choice->number[i] >= 0 && choice->number[i] <= UINT32_MAX;
    }
    return good;
}

tr_status tri_product_choices_read(tri_product_choices *choices, const char *path, tr_error *err)
{
    json_t *object, *entry;
    size_t i;
    TRI_TRY(tri_tuning_json_read(path, &object, err));
    tr_status status = TR_OK;
    json_array_foreach(json_object_get(object, list_name), i, entry)
    {
        tri_product_choice choice, *to;
        if (status != TR_OK || !is_ours(choices, entry))
            continue;
        if (!read_choice(entry, &choice))
            status = tri_fail(err, TR_ERROR_INPUT,
                              "%s: entry %zu of \"%s\" makes no sense; delete the file, and it is "
                              "measured anew",
                              path, i, list_name);
        else if ((to = room_for(choices, &choice.key)) != NULL)
            *to = choice;
    }
    json_decref(object);
    return status;
}

static json_t *choice_json(const tri_product_choices *choices, const tri_product_choice *c)
{
    const tri_product_key *k = &c->key;
    json_t *entry = json_pack(
        "{s:s, s:I, s:I, s:I, s:I, s:s, s:s, s:s, s:b, s:b, s:b, s:s, s:f, s:f}", "gpu",
        choices->gpu, "cublaslt", (json_int_t)choices->library, "m", (json_int_t)k->m, "n",
        (json_int_t)k->n, "k", (json_int_t)k->k, "a", tri_dtype_name(k->in), "b",
        tri_dtype_name(k->in_b), "c", tri_dtype_name(k->out), "transposed_a", k->trans_a,
        "transposed_b", k->trans_b, "fast_sum", k->fast_sum, "epilogue",
        epilogue_names[k->epilogue], "seconds", c->seconds, "first_seconds", c->first_seconds);
    if (c->apart) {
        json_object_set_new(entry, "apart", json_true());
        return entry;
    }
    json_t *algorithm = json_object();
    for (int i = 0; i < TRI_PRODUCT_NUMBERS; i++)
        json_object_set_new(algorithm, number_names[i], json_integer((json_int_t)c->number[i]));
    json_object_set_new(entry, "algorithm", algorithm);
    return entry;
}

/* Where the list has this product; its size when it has not. */
static size_t place_of(const tri_product_choices *choices, const json_t *list,
                       const tri_product_key *key)
{
    tri_product_key other = {0};
    size_t num = json_array_size(list);
    for (size_t i = 0; i < num; i++) {
        const json_t *entry = json_array_get(list, i);
        if (is_ours(choices, entry) && read_key(entry, &other) && same_key(&other, key))
            return i;
    }
    return num;
}

static bool put_choices(json_t *list, const void *context)
{
    const tri_product_choices *choices = context;
    bool changed = false;
    for (size_t i = 0; i < choices->num; i++) {
        const tri_product_choice *c = &choices->all[i];
        if (!c->is_new)
            continue;
        size_t place = place_of(choices, list, &c->key);
        bool there = place < json_array_size(list);
        if (there && !c->replaces)
            continue;
        if (there)
            json_array_set_new(list, place, choice_json(choices, c));
        else
            json_array_append_new(list, choice_json(choices, c));
        changed = true;
    }
    return changed;
}

tr_status tri_product_choices_save(const tri_product_choices *choices, const char *path,
                                   tr_error *err)
{
    bool any = false;
    for (size_t i = 0; i < choices->num; i++)
        any = any || choices->all[i].is_new;
    return any ? tri_tuning_json_change(path, list_name, put_choices, choices, err) : TR_OK;
}
