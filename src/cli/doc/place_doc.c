/* trireme place --json. An amount that depends on letters without sizes is a formula, a text. */
#include <math.h>

#include "cli/doc/docs.h"
#include "mesh/cluster.h"
#include "sim/like/software.h"

static void put_amount(json_t *object, const char *key, const tri_calc *calc,
                       const tri_amount *amount)
{
    double value;
    if (tri_amount_known(amount, &value)) {
        tri_doc_number(object, key, value);
        return;
    }
    tri_text text;
    tri_text_init(&text);
    tri_calc_write_amount(calc, amount, "", &text);
    tri_doc_text(object, key, text.chars);
    tri_text_fini(&text);
}

static void put_array(json_t *object, const char *key, const tri_calc *calc,
                      const tri_calc_array *array)
{
    tri_text text;
    tri_text_init(&text);
    tri_calc_write_array(calc, array, &text);
    tri_doc_text(object, key, text.chars);
    tri_text_fini(&text);
}

static void put_seconds(json_t *object, const char *key, double seconds)
{
    tri_doc_number(object, key, seconds >= 0 ? seconds : (double)NAN);
}

void tri_doc_array(json_t *list, const tri_calc *calc, const tri_calc_array *array)
{
    unsigned all = calc->num_axes ? (1u << calc->num_axes) - 1 : 0;
    unsigned cut = tri_calc_cut_axes(array), copied = all & ~cut & ~array->terms;
    tri_amount elements = tri_calc_elements(calc, array, false);
    tri_amount local = tri_calc_bytes(calc, array, false);
    tri_amount whole = tri_calc_bytes(calc, array, true);
    json_t *item = tri_doc_item(list);
    tri_doc_text(item, "kind", "array");
    put_array(item, "array", calc, array);
    put_amount(item, "device_elements", calc, &elements);
    put_amount(item, "device_bytes", calc, &local);
    put_amount(item, "whole_bytes", calc, &whole);
    tri_doc_count(item, "shards", tri_calc_devices(calc, cut));
    tri_doc_count(item, "copies", tri_calc_devices(calc, copied));
    tri_doc_count(item, "devices", tri_calc_devices(calc, all));
}

static void put_moves(json_t *object, const char *key, const tri_calc *calc,
                      const tri_calc_moves *moves)
{
    json_t *list = tri_doc_list(object, key);
    for (int i = 0; i < moves->num; i++) {
        const tri_calc_move *move = &moves->items[i];
        json_t *item = tri_doc_item(list);
        tri_text axes;
        tri_text_init(&axes);
        tri_calc_write_axes(calc, move->axes, &axes);
        tri_doc_text(item, "operation", tri_calc_move_name(move->kind));
        tri_doc_text(item, "axes", axes.chars);
        put_array(item, "from", calc, &move->before);
        put_array(item, "to", calc, &move->after);
        put_amount(item, "bytes", calc, &move->vector);
        put_amount(item, "sent_bytes", calc, &move->sent);
        put_seconds(item, "seconds", move->seconds);
        tri_doc_flag(item, "there_already", move->there);
        tri_text_fini(&axes);
    }
}

void tri_doc_moves(json_t *list, const tri_calc *calc, const tri_calc_array *from,
                   const tri_calc_array *to, const tri_calc_moves *moves)
{
    json_t *item = tri_doc_item(list);
    tri_doc_text(item, "kind", "move");
    put_array(item, "from", calc, from);
    put_array(item, "to", calc, to);
    put_moves(item, "moves", calc, moves);
    put_seconds(item, "seconds", tri_calc_move_seconds(moves));
}

void tri_doc_product(json_t *list, const tri_calc *calc, const tri_calc_product *product,
                     const char *phase)
{
    static const char *const traffic[] = {"a_bytes", "b_bytes", "c_bytes"};
    json_t *item = tri_doc_item(list);
    tri_doc_text(item, "kind", "product");
    if (phase)
        tri_doc_text(item, "phase", phase);
    put_array(item, "a", calc, &product->a);
    put_array(item, "b", calc, &product->b);
    put_array(item, "c", calc, &product->c);
    put_moves(item, "before", calc, &product->before);
    put_moves(item, "after", calc, &product->after);
    put_amount(item, "flops", calc, &product->flops);
    for (int i = 0; i < 3; i++)
        put_amount(item, traffic[i], calc, &product->traffic[i]);
    put_seconds(item, "compute_seconds", tri_calc_compute_seconds(calc, product));
    put_seconds(item, "memory_seconds", tri_calc_memory_seconds(calc, product));
    put_seconds(item, "before_seconds", tri_calc_move_seconds(&product->before));
    put_seconds(item, "after_seconds", tri_calc_move_seconds(&product->after));
}

tr_status tri_doc_states(json_t *list, const tri_calc *calc, double num_params, int64_t group,
                         tr_error *err)
{
    tri_calc_state rows[TRI_CALC_STATES];
    int64_t shard;
    TRI_TRY(tri_calc_states(calc, num_params, group, rows, &shard, err));
    for (int i = 0; i < TRI_CALC_STATES; i++) {
        const tri_calc_state *row = &rows[i];
        double all = row->weights + row->gradients + row->optimizer;
        json_t *item = tri_doc_item(list);
        tri_doc_text(item, "kind", "state");
        tri_doc_text(item, "recipe", row->recipe);
        tri_doc_count(item, "zero", row->zero);
        tri_doc_count(item, "shard_group", shard);
        tri_doc_number(item, "weights_bytes", row->weights);
        tri_doc_number(item, "gradients_bytes", row->gradients);
        tri_doc_number(item, "optimizer_bytes", row->optimizer);
        tri_doc_number(item, "device_bytes", all);
        if (calc->device)
            tri_doc_flag(item, "fits", all <= calc->device->memory_bytes);
    }
    return TR_OK;
}

static void put_rates(json_t *item, const char *key, const double rates[TRI_NUM_RATES])
{
    json_t *object = tri_doc_object(item, key);
    for (int rate = 0; rate < TRI_NUM_RATES; rate++)
        tri_doc_number(object, tri_rate_name((tri_rate)rate),
                       rates[rate] > 0 ? rates[rate] : (double)NAN);
}

static void put_profile(json_t *item, const tri_device_spec *device)
{
    tri_device_profile p = tri_profile_of(device);
    tri_doc_text(item, "kind", tri_profile_kind_name(p.kind));
    tri_doc_text(item, "from", p.from);
    tri_doc_number(item, "product_share", p.product);
    tri_doc_number(item, "product_8bit_share", p.product8);
    tri_doc_number(item, "memory_share", p.memory);
    tri_doc_number(item, "attention_share", p.flash);
    tri_doc_number(item, "attention_backward_share", p.flash_back);
    tri_doc_number(item, "link_share", p.link);
}

static void put_clusters(json_t *list)
{
    for (size_t i = 0; tri_cluster_spec_at(i); i++) {
        const tri_cluster_spec *c = tri_cluster_spec_at(i);
        json_t *item = tri_doc_item(list);
        tri_doc_text(item, "name", c->name);
        tri_doc_text(item, "title", c->title);
        tri_doc_count(item, "devices_per_node", c->devices_per_node);
        tri_doc_number(item, "node_bytes_per_second", c->node_bytes_per_s);
        tri_doc_count(item, "cards_per_node", c->cards_per_node);
        tri_doc_number(item, "card_bytes_per_second", c->card_bytes_per_s);
        tri_doc_count(item, "torus_axes", c->torus_axes);
        tri_doc_text(item, "source", c->source);
    }
}

static void put_software(json_t *list)
{
    for (size_t i = 0; tri_software_at(i); i++) {
        const tri_software *w = tri_software_at(i);
        json_t *item = tri_doc_item(list);
        tri_doc_text(item, "name", w->name);
        tri_doc_text(item, "title", w->title);
        tri_doc_text(item, "from", w->from);
    }
}

void tri_doc_devices(json_t *doc)
{
    json_t *devices = tri_doc_list(doc, "devices"), *links = tri_doc_list(doc, "links");
    json_t *clusters = tri_doc_list(doc, "clusters"), *softwares = tri_doc_list(doc, "software");
    for (size_t i = 0; tri_device_spec_at(i); i++) {
        const tri_device_spec *d = tri_device_spec_at(i);
        json_t *item = tri_doc_item(devices);
        tri_doc_text(item, "name", d->name);
        tri_doc_text(item, "title", d->title);
        put_rates(item, "flops_per_second", d->dense);
        put_rates(item, "sparse_flops_per_second", d->sparse);
        tri_doc_number(item, "memory_bytes", d->memory_bytes);
        tri_doc_number(item, "memory_bytes_per_second", d->memory_bytes_per_s);
        tri_doc_text(item, "link", d->link);
        tri_doc_count(item, "multiprocessors", d->multiprocessors);
        put_profile(tri_doc_object(item, "profile"), d);
        tri_doc_text(item, "source", d->source);
    }
    for (size_t i = 0; tri_link_spec_at(i); i++) {
        const tri_link_spec *l = tri_link_spec_at(i);
        json_t *item = tri_doc_item(links);
        tri_doc_text(item, "name", l->name);
        tri_doc_text(item, "title", l->title);
        tri_doc_number(item, "bytes_per_second", l->bytes_per_s);
        tri_doc_count(item, "torus_axes", l->torus_axes);
        tri_doc_text(item, "source", l->source);
    }
    put_clusters(clusters);
    put_software(softwares);
}
