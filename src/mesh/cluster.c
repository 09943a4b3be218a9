/* Descriptions of clusters, and how groups of ranks lie on them. */
#include "mesh/cluster.h"

#include <stdlib.h>
#include <string.h>

#include "base/fs.h"
#include "base/settings/nearest.h"
#include "mesh/devices.h"

/* A cluster while it is being described. */
typedef struct draft {
    tri_cluster_spec spec;
    char name[TRI_CLUSTER_NAME];
    double nodes;      /* 0: not said */
    uint32_t measured; /* 1: so bandwidths are */
} draft;

typedef struct cluster_key {
    const char *name, *what;
    bool whole; /* a whole number from 1 on */
    size_t offset;
} cluster_key;

#define SPEC(member) (offsetof(draft, spec) + offsetof(tri_cluster_spec, member))
static const cluster_key keys[] = {
    {"nodes", "number of nodes", false, offsetof(draft, nodes)},
    {"devices_per_node", "devices of a node", true, SPEC(devices_per_node)},
    {"node_bandwidth", "bytes/s of a device within its node", false, SPEC(node_bytes_per_s)},
    {"node_latency", "seconds of a message within a node", false, SPEC(latency_s)},
    {"cards_per_node", "network cards of a node", true, SPEC(cards_per_node)},
    {"card_bandwidth", "bytes/s of a network card", false, SPEC(card_bytes_per_s)},
    {"card_latency", "seconds of a message between nodes", false, SPEC(card_latency_s)},
    {"torus_axes", "axes of the torus within a node", true, SPEC(torus_axes)},
    {"rack_nodes", "nodes that share a switch", true, SPEC(rack_nodes)},
    {"oversubscription", "of the links between racks", false, SPEC(oversubscription)},
    {"measured", "1 where bandwidths are measured ones", true, offsetof(draft, measured)},
};
enum { NUM_KEYS = sizeof keys / sizeof *keys, MAX_LINE = 200 };

static tr_status unknown_cluster(const char *name, tr_error *err)
{
    const tri_cluster_spec *best = tri_cluster_spec_at(0), *spec;
    for (size_t i = 1; (spec = tri_cluster_spec_at(i)); i++)
        if (tri_edit_distance(name, spec->name) < tri_edit_distance(name, best->name))
            best = spec;
    return tri_fail(err, TR_ERROR_INPUT,
                    "there is no cluster \"%.40s\"; the nearest is %s. "
                    "nodes=4,devices_per_node=8,node_bandwidth=300G,cards_per_node=8,"
                    "card_bandwidth=25G describes one, and so does a file of such lines",
                    name, best->name);
}

static tr_status set_device(draft *d, const char *name, tr_error *err)
{
    const tri_device_spec *device = tri_device_spec_find(name);
    if (!device)
        return tri_fail(err, TR_ERROR_INPUT,
                        "there is no device \"%.40s\"; `trireme place --devices` lists them", name);
    d->spec.device = device->name;
    return TR_OK;
}

static tr_status set_key(draft *d, const char *name, const char *value, tr_error *err)
{
    if (strcmp(name, "device") == 0)
        return set_device(d, value, err);
    size_t best = 0;
    for (size_t i = 1; i < NUM_KEYS; i++)
        if (tri_edit_distance(name, keys[i].name) < tri_edit_distance(name, keys[best].name))
            best = i;
    if (strcmp(name, keys[best].name) != 0)
        return tri_fail(err, TR_ERROR_INPUT, "a cluster has no \"%.40s\"; the nearest is %s (%s)",
                        name, keys[best].name, keys[best].what);
    double number;
    tr_status status = tri_quantity_parse(value, &number, err);
    if (status != TR_OK)
        return tri_fail_prefix(err, status, "%s (%s)", name, keys[best].what);
    bool whole = keys[best].whole || best == 0;
    if (whole && !(number >= 1 && number <= 1e8 && number == (double)(uint32_t)number))
        return tri_fail(err, TR_ERROR_INPUT, "%s is %.40s; give a whole number from 1 on", name,
                        value);
    char *field = (char *)d + keys[best].offset;
    if (keys[best].whole)
        memcpy(field, &(uint32_t){(uint32_t)number}, sizeof(uint32_t));
    else
        memcpy(field, &number, sizeof number);
    return TR_OK;
}

/* "dgx-a100" or "dgx-a100:16". */
static tr_status begin_like(draft *d, char *word, tr_error *err)
{
    char *colon = strchr(word, ':');
    if (colon)
        *colon = 0;
    const tri_cluster_spec *spec = tri_cluster_spec_find(word);
    if (!spec)
        return unknown_cluster(word, err);
    d->spec = *spec;
    memset(d->name, 0, sizeof d->name);
    memcpy(d->name, spec->name, strnlen(spec->name, sizeof d->name - 1));
    return colon ? set_key(d, "nodes", colon + 1, err) : TR_OK;
}

/* A piece of a line or of a list: "key: value", "key=value", or what a cluster is like. */
static tr_status read_piece(draft *d, char *piece, bool first, tr_error *err)
{
    static const char blank[] = " \t\r";
    piece += strspn(piece, blank);
    for (size_t n = strlen(piece); n > 0 && strchr(blank, piece[n - 1]); n--)
        piece[n - 1] = 0;
    if (!*piece)
        return TR_OK;
    char *equals = strpbrk(piece, first ? "=" : "=:");
    if (!equals && first)
        return begin_like(d, piece, err);
    if (!equals)
        return tri_fail(err, TR_ERROR_INPUT, "\"%.40s\" is no key=value of a cluster", piece);
    char *value = equals + 1 + strspn(equals + 1, blank);
    *equals = 0;
    for (size_t n = strlen(piece); n > 0 && strchr(blank, piece[n - 1]); n--)
        piece[n - 1] = 0;
    return strcmp(piece, "like") == 0 ? begin_like(d, value, err) : set_key(d, piece, value, err);
}

/* Pieces between the separators; what follows a # on a line does not count. */
static tr_status read_pieces(draft *d, const char *text, const char *separators, bool may_name,
                             tr_error *err)
{
    char piece[MAX_LINE];
    bool first = may_name;
    for (const char *at = text; *at; first = false) {
        size_t length = strcspn(at, separators), used = strcspn(at, "#");
        used = used < length ? used : length;
        if (used >= sizeof piece)
            return tri_fail(err, TR_ERROR_INPUT, "\"%.40s...\" is too long for a cluster", at);
        memcpy(piece, at, used);
        piece[used] = 0;
        TRI_TRY(read_piece(d, piece, first, err));
        at += length + (at[length] != 0);
    }
    return TR_OK;
}

static tr_status read_cluster_file(draft *d, const char *path, tr_error *err)
{
    char *data;
    size_t num_bytes;
    TRI_TRY(tri_file_read(path, &data, &num_bytes, err));
    tr_status status = strlen(data) == num_bytes ? read_pieces(d, data, "\n", false, err)
                                                 : tri_fail(err, TR_ERROR_INPUT, "this is no text");
    free(data);
    if (status == TR_OK)
        return TR_OK;
    tr_error inner = *err;
    return tri_fail(err, status, "%.200s: %.300s", path, inner.message);
}

static tr_status check_draft(const draft *d, tr_error *err)
{
    const tri_cluster_spec *s = &d->spec;
    if (s->devices_per_node == 0 || s->node_bytes_per_s <= 0)
        return tri_fail(
            err, TR_ERROR_INPUT,
            "the cluster has no %s; give it, or begin with a ready one (like: dgx-a100)",
            s->devices_per_node == 0 ? "devices_per_node" : "node_bandwidth");
    if (d->nodes > 1 && (s->cards_per_node == 0 || s->card_bytes_per_s <= 0))
        return tri_fail(err, TR_ERROR_INPUT,
                        "%u nodes of %s have no network between them; give cards_per_node and "
                        "card_bandwidth",
                        (unsigned)d->nodes, d->name);
    if (s->torus_axes > 3 || s->oversubscription < 1)
        return tri_fail(err, TR_ERROR_INPUT, "%s; give %s",
                        s->torus_axes > 3 ? "a torus has more than 3 axes"
                                          : "the oversubscription is less than 1",
                        s->torus_axes > 3 ? "torus_axes=1 to 3" : "1 where there is none");
    return TR_OK;
}

static void finish_cluster(const draft *d, tri_cluster *cluster)
{
    const tri_cluster_spec *s = &d->spec;
    uint32_t nodes = (uint32_t)d->nodes, all = nodes * s->devices_per_node;
    double card = s->cards_per_node * s->card_bytes_per_s / s->devices_per_node;
    *cluster = (tri_cluster){.device = s->device,
                             .nodes = nodes,
                             .devices_per_node = s->devices_per_node,
                             .measured = d->measured != 0,
                             .num_tiers = 1};
    memcpy(cluster->name, d->name, sizeof cluster->name);
    cluster->tier[0] = (tri_tier){.name = "node",
                                  .devices = s->devices_per_node,
                                  .bytes_per_s = s->node_bytes_per_s,
                                  .latency_s = s->latency_s,
                                  .torus_axes = s->torus_axes};
    if (nodes == 1)
        return;
    bool leaves = s->rack_nodes > 0 && s->rack_nodes < nodes;
    if (leaves && s->rack_nodes > 1)
        cluster->tier[cluster->num_tiers++] =
            (tri_tier){.name = "rack",
                       .devices = s->rack_nodes * s->devices_per_node,
                       .bytes_per_s = card,
                       .latency_s = s->card_latency_s};
    cluster->tier[cluster->num_tiers++] =
        (tri_tier){.name = "network",
                   .devices = all,
                   .bytes_per_s = card / (leaves ? s->oversubscription : 1),
                   .latency_s = s->card_latency_s};
}

bool tri_cluster_is_path(const char *text)
{
    size_t word = strcspn(text, ",:=");
    return memchr(text, '/', word) || memchr(text, '.', word);
}

tr_status tri_cluster_parse(const char *text, uint32_t devices, tri_cluster *cluster, tr_error *err)
{
    draft d = {.spec = {.latency_s = 8e-6, .card_latency_s = 8e-6, .oversubscription = 1},
               .name = "given"};
    if (tri_cluster_is_path(text))
        TRI_TRY(read_cluster_file(&d, text, err));
    else
        TRI_TRY(read_pieces(&d, text, ",", true, err));
    uint32_t per = d.spec.devices_per_node;
    if (d.nodes == 0 && per > 0)
        d.nodes = devices > per ? (devices + per - 1) / per : 1;
    TRI_TRY(check_draft(&d, err));
    if (d.measured && strcmp(d.name, "given") == 0)
        strcpy(d.name, "measured");
    if (d.nodes * per > 1e9 || d.nodes * per < devices)
        return tri_fail(err, TR_ERROR_INPUT,
                        "cluster %s has %u node%s of %u devices, and %u are asked for; give "
                        "nodes=%u, or leave it out",
                        d.name, (unsigned)d.nodes, d.nodes == 1 ? "" : "s", per, devices,
                        (devices + per - 1) / per);
    finish_cluster(&d, cluster);
    return TR_OK;
}

/* ---- groups ---- */

uint32_t tri_cluster_tier_between(const tri_cluster *cluster, uint32_t a, uint32_t b)
{
    uint32_t tier = 0;
    while (tier + 1 < cluster->num_tiers &&
           a / cluster->tier[tier].devices != b / cluster->tier[tier].devices)
        tier++;
    return tier;
}

static uint32_t greatest_divisor(uint32_t a, uint32_t b)
{
    while (b > 0) {
        uint32_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* Members after which a group lies in its domains as it did at first, so that no more need be
 * looked at: ranks at equal distances do so. Others are looked at one and all. */
static uint32_t members_to_look_at(const tri_rank_group *group, uint32_t domain)
{
    uint64_t ranks = 1;
    for (uint32_t l = 0; l < group->num_levels; l++) {
        if (group->level[l].stride != ranks * group->level[0].stride)
            return group->size;
        ranks *= group->level[l].size;
    }
    if (group->num_listed > 0 || group->num_levels == 0)
        return group->size;
    uint32_t stride = group->level[0].stride;
    uint64_t again = (uint64_t)domain / greatest_divisor(domain, stride) + domain / stride + 2;
    return again < group->size ? (uint32_t)again : group->size;
}

tri_group_span tri_cluster_span(const tri_cluster *cluster, const tri_rank_group *group)
{
    tri_group_span span = {0};
    for (uint32_t t = 0; t < cluster->num_tiers; t++) {
        uint32_t domain = 0, members = 0;
        uint32_t num = members_to_look_at(group, cluster->tier[t].devices);
        bool one = true;
        for (uint32_t i = 0; i < num; i++) {
            uint32_t at = (uint32_t)tri_rank_group_member(group, i) / cluster->tier[t].devices;
            one = one && (i == 0 || at == domain);
            members = i > 0 && at == domain ? members + 1 : 1;
            domain = at;
            span.inside[t] = members > span.inside[t] ? members : span.inside[t];
        }
        if (one) {
            for (span.tier = t; t < TRI_CLUSTER_TIERS; t++)
                span.inside[t] = group->size;
            return span;
        }
    }
    span.tier = cluster->num_tiers - 1;
    return span;
}
