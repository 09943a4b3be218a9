/* Devices and links by name, and devices that a person describes. */
#include "mesh/devices.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/settings/nearest.h"

const char *tri_rate_name(tri_rate rate)
{
    static const char *const names[TRI_NUM_RATES] = {"f32", "tf32", "16-bit", "fp8", "int8"};
    return names[rate];
}

static bool is_alias(const char *aliases, const char *name)
{
    size_t length = strlen(name);
    for (const char *at = aliases; at && *at;) {
        size_t word = strcspn(at, ",");
        if (word == length && strncasecmp(at, name, word) == 0)
            return true;
        at += word + (at[word] == ',');
    }
    return false;
}

const tri_device_spec *tri_device_spec_find(const char *name)
{
    const tri_device_spec *device;
    for (size_t i = 0; (device = tri_device_spec_at(i)); i++)
        if (strcasecmp(device->name, name) == 0 || is_alias(device->aliases, name))
            return device;
    return NULL;
}

const tri_link_spec *tri_link_spec_find(const char *name)
{
    const tri_link_spec *link;
    for (size_t i = 0; (link = tri_link_spec_at(i)); i++)
        if (strcasecmp(link->name, name) == 0)
            return link;
    return NULL;
}

double tri_link_ring_bytes_per_s(const tri_link_spec *link, int num_axes)
{
    if (link->torus_axes == 0)
        return link->bytes_per_s;
    int axes = num_axes < link->torus_axes ? num_axes : link->torus_axes;
    return 2 * link->bytes_per_s * (axes > 1 ? axes : 1);
}

/* ---- descriptions ---- */

typedef struct device_key {
    const char *name, *what;
    size_t offset; /* of a double in tri_device_spec; link and multiprocessors are none */
} device_key;

enum { KEY_UNITS = 8, KEY_LINK };
static const device_key keys[] = {
    {"peak", "FLOP/s of 16-bit products", offsetof(tri_device_spec, dense[TRI_RATE_16])},
    {"f32", "FLOP/s of f32 products", offsetof(tri_device_spec, dense[TRI_RATE_F32])},
    {"tf32", "FLOP/s of tf32 products", offsetof(tri_device_spec, dense[TRI_RATE_TF32])},
    {"fp8", "FLOP/s of 8-bit products", offsetof(tri_device_spec, dense[TRI_RATE_FP8])},
    {"int8", "OP/s of int8 products", offsetof(tri_device_spec, dense[TRI_RATE_INT8])},
    {"memory", "bytes", offsetof(tri_device_spec, memory_bytes)},
    {"bandwidth", "bytes a second of its memory", offsetof(tri_device_spec, memory_bytes_per_s)},
    {"sparse", "FLOP/s of sparse 16-bit products", offsetof(tri_device_spec, sparse[TRI_RATE_16])},
    {"multiprocessors", "units that run tiles of a product", 0},
    {"link", "a link by its name", 0},
};
enum { NUM_KEYS = sizeof keys / sizeof *keys };

static tr_status unknown_device(const char *name, tr_error *err)
{
    const tri_device_spec *best = tri_device_spec_at(0), *device;
    for (size_t i = 1; (device = tri_device_spec_at(i)); i++)
        if (tri_edit_distance(name, device->name) < tri_edit_distance(name, best->name))
            best = device;
    bool slip = tri_is_slip(name, best->name);
    return tri_fail(err, TR_ERROR_INPUT,
                    "there is no device \"%.40s\"; %s%s%s`trireme place --devices` lists them, and "
                    "peak=312T,memory=80G,bandwidth=2039G describes one",
                    name, slip ? "did you mean " : "", slip ? best->name : "", slip ? "? " : "");
}

static tr_status unknown_key(const char *word, tr_error *err)
{
    size_t best = 0;
    for (size_t i = 1; i < NUM_KEYS; i++)
        if (tri_edit_distance(word, keys[i].name) < tri_edit_distance(word, keys[best].name))
            best = i;
    return tri_fail(err, TR_ERROR_INPUT,
                    "a device has no \"%.40s\"; the nearest is %s (%s). There are peak, f32, tf32, "
                    "fp8, int8, sparse, memory, bandwidth, multiprocessors and link",
                    word, keys[best].name, keys[best].what);
}

tr_status tri_quantity_parse(const char *text, double *value, tr_error *err)
{
    static const char letters[] = "kMGTP";
    char *end;
    double number = strtod(text, &end);
    const char *letter = *end ? strchr(letters, *end) : NULL;
    for (const char *l = letters; letter && l <= letter; l++)
        number *= 1000;
    if (end == text || end[letter != NULL] || !(number > 0 && number < 1e30))
        return tri_fail(err, TR_ERROR_INPUT,
                        "\"%.40s\" is no positive number; write 312e12 or 312T (k, M, G, T, P)",
                        text);
    *value = number;
    return TR_OK;
}

static tr_status set_key(tri_device_spec *spec, const char *name, const char *value, tr_error *err)
{
    size_t key = 0;
    while (key < NUM_KEYS && strcmp(keys[key].name, name) != 0)
        key++;
    if (key == NUM_KEYS)
        return unknown_key(name, err);
    if (key == KEY_LINK) {
        const tri_link_spec *link = tri_link_spec_find(value);
        if (!link)
            return tri_fail(err, TR_ERROR_INPUT,
                            "there is no link \"%.40s\"; `trireme place --devices` lists them",
                            value);
        spec->link = link->name;
        return TR_OK;
    }
    double number;
    TRI_TRY(tri_quantity_parse(value, &number, err));
    if (key == KEY_UNITS && !(number >= 1 && number <= 1e6))
        return tri_fail(err, TR_ERROR_INPUT, "multiprocessors is %.40s; give 1 to 1000000", value);
    if (key == KEY_UNITS)
        spec->multiprocessors = (int)number;
    else
        memcpy((char *)spec + keys[key].offset, &number, sizeof number);
    return TR_OK;
}

static tr_status check_described(const tri_device_spec *spec, tr_error *err)
{
    const char *missing = spec->dense[TRI_RATE_16] <= 0   ? "peak"
                          : spec->memory_bytes <= 0       ? "memory"
                          : spec->memory_bytes_per_s <= 0 ? "bandwidth"
                                                          : NULL;
    if (missing)
        return tri_fail(err, TR_ERROR_INPUT,
                        "the device has no %s; give peak=...,memory=...,bandwidth=..., or the name "
                        "of a device first (a100,memory=40G)",
                        missing);
    return TR_OK;
}

tr_status tri_device_spec_parse(const char *text, tri_device_spec *spec, tr_error *err)
{
    size_t word = strcspn(text, ",");
    char piece[96];
    *spec = (tri_device_spec){.name = "given",
                              .title = "a device as described",
                              .link = "pcie4",
                              .multiprocessors = 100,
                              .source = "given"};
    for (const char *at = text;; word = strcspn(at, ",")) {
        if (word >= sizeof piece)
            return tri_fail(err, TR_ERROR_INPUT, "\"%.40s...\" is too long for a device", at);
        memcpy(piece, at, word);
        piece[word] = 0;
        char *equals = strchr(piece, '=');
        if (!equals && at == text) {
            const tri_device_spec *known = tri_device_spec_find(piece);
            if (!known)
                return unknown_device(piece, err);
            *spec = *known;
        } else if (!equals) {
            return tri_fail(err, TR_ERROR_INPUT, "\"%.40s\" is no key=value of a device", piece);
        } else {
            *equals = 0;
            TRI_TRY(set_key(spec, piece, equals + 1, err));
        }
        if (!at[word])
            return check_described(spec, err);
        at += word + 1;
    }
}
