#include "search_cases.h"

#include "small_models.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "search/parallel.h"

/* ---- numbers ---- */

/* splitmix64 */
uint64_t random_next(random_numbers *r)
{
    uint64_t z = r->state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

int64_t random_below(random_numbers *r, int64_t n)
{
    return (int64_t)(random_next(r) % (uint64_t)n);
}

bool random_one_in(random_numbers *r, int n)
{
    return random_below(r, n) == 0;
}

uint64_t number_from_environment(const char *name, uint64_t fallback)
{
    const char *text = getenv(name);
    return text && *text ? strtoull(text, NULL, 10) : fallback;
}

/* One of the words of a list that ends in NULL. */
static const char *word(random_numbers *r, const char *const *list)
{
    int num = 0;
    while (list[num])
        num++;
    return list[random_below(r, num)];
}
#define WORD(r, ...) word((r), (const char *const[]){__VA_ARGS__, NULL})

/* ---- what is trained ---- */

static void tell(search_case *c, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void tell(search_case *c, const char *format, ...)
{
    size_t used = strlen(c->text);
    va_list args;
    va_start(args, format);
    vsnprintf(c->text + used, sizeof c->text - used, format, args);
    va_end(args);
}

static void set(search_case *c, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void set(search_case *c, const char *format, ...)
{
    char text[160];
    tr_error err = {0};
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    tell(c, " --set %s", text);
    if (tr_settings_set(c->settings, text, &err) != TR_OK)
        fail_msg("%s: %s", text, err.message);
}

static void make_model(search_case *c)
{
    random_numbers *r = &c->random;
    tri_space_facts *f = &c->facts;
    const char *kind = WORD(r, "gpt2", "llama", "llama");
    bool llama = strcmp(kind, "llama") == 0, moe = llama && random_one_in(r, 2);
    f->layers = 1 + (uint32_t)random_below(r, random_one_in(r, 4) ? 9 : 4);
    f->heads = 1u << random_below(r, 4);
    f->seq_len = random_one_in(r, 4) ? 2048 : 8 << random_below(r, 4);
    f->batch = random_one_in(r, 3) ? 1 + random_below(r, 12) : 2 << random_below(r, 3);
    f->can_cp = true;
    set(c, "model.kind=%s", kind);
    set(c, "model.num_layers=%u", f->layers);
    set(c, "model.num_heads=%u", f->heads);
    set(c, "model.dim=%u", f->heads * (8u << random_below(r, 3)));
    set(c, "model.vocab=%u", 32u << random_below(r, 4));
    set(c, "data.seq_len=%lld", (long long)f->seq_len);
    set(c, "train.batch=%lld", (long long)f->batch);
    if (llama && f->heads > 1)
        set(c, "model.num_kv_heads=%u", f->heads / 2);
    if (moe) {
        f->experts = 2u << random_below(r, 2);
        set(c, "model.num_experts=%u", f->experts);
        set(c, "model.experts_per_token=%d", random_one_in(r, 2) ? 1 : 2);
        if (random_one_in(r, 4))
            set(c, "model.expert_layers=0");
    }
    if (random_one_in(r, 2))
        set(c, "precision.kind=%s", WORD(r, "bf16", "bf16", "fp16"));
    if (random_one_in(r, 4))
        set(c, "optim.kind=%s", WORD(r, "sgd", "adam", "lion"));
    if (random_one_in(r, 8))
        set(c, "optim.moments=8bit");
}

/* ---- what it is trained on ---- */

/* Slow devices, so that small models keep them busy, or fast ones, which wait for messages. */
static void make_machine(search_case *c)
{
    random_numbers *r = &c->random;
    tri_search_machine *m = &c->of.machine;
    char cluster_text[160], near[16];
    tr_error err = {0};
    tri_cluster cluster;
    uint32_t devices = (uint32_t[]){2, 2, 3, 4, 4, 4, 6, 8}[random_below(r, 8)];
    bool two = devices % 2 == 0 && random_one_in(r, 3), datasheet = !two && random_one_in(r, 5);
    snprintf(near, sizeof near, "%s", WORD(r, "300G", "1G", "100M"));
    snprintf(c->device_text, sizeof c->device_text, "%s,memory=1G,bandwidth=%s",
             WORD(r, "peak=100T,fp8=200T", "peak=1T,fp8=2T", "peak=20G,fp8=40G"),
             WORD(r, "1T", "20G"));
    snprintf(cluster_text, sizeof cluster_text,
             "nodes=%d,devices_per_node=%u,node_bandwidth=%s,node_latency=%s,cards_per_node=1,"
             "card_bandwidth=%s",
             two ? 2 : 1, two ? devices / 2 : devices, near, WORD(r, "8e-6", "1e-7"),
             WORD(r, "20M", "10G"));
    if (tri_device_spec_parse(c->device_text, &c->device, &err) != TR_OK ||
        tri_cluster_parse(cluster_text, devices, &cluster, &err) != TR_OK)
        fail_msg("%s", err.message);
    bool half = strcmp(tr_settings_string(c->settings, "precision.kind"), "fp32") != 0;
    tri_rate rate = half ? TRI_RATE_16 : TRI_RATE_F32;
    c->device.dense[TRI_RATE_F32] = c->device.dense[TRI_RATE_16] / 2;
    c->model = tri_machine_model_of(&c->device, &cluster, rate);
    c->link = (tri_link_spec){.name = "own", .title = "own", .bytes_per_s = 1e9};
    c->roofline =
        (tri_device_model){.device = &c->device, .link = &c->link, .rate = rate, .efficiency = 0.5};
    *m = (tri_search_machine){.devices = devices,
                              .node = two ? devices / 2 : devices,
                              .memory_bytes = 1ull << 40,
                              .costs = datasheet ? tri_roofline_costs(&c->roofline)
                                                 : tri_machine_costs(&c->model),
                              .peak_flops = c->device.dense[rate],
                              .cluster = datasheet ? NULL : &c->model.cluster,
                              .terms = c->model.terms,
                              .error = 0.05};
    c->of.linear8_too = half && random_one_in(r, 8);
    c->facts.devices = devices;
    c->facts.node = m->node;
    c->facts.can_linear8 = c->of.linear8_too;
    tell(c, "\n  %s%s; %s%s", c->device_text, datasheet ? ", datasheet" : "", cluster_text,
         c->of.linear8_too ? "; fp8, too" : "");
}

/* ---- what is fixed ---- */

/* Something that a layout says, as --fix takes it. */
static void describe_one(random_numbers *r, const tri_layout_choice *l, char *text, size_t size)
{
    static const char *const keepings[] = {"none",    "selective", "full",
                                           "every:2", "every:4",   "budget:1MiB"};
    const struct {
        const char *name;
        uint32_t value;
    } numbers[] = {{"tp", l->tp},
                   {"cp", l->cp},
                   {"ep", l->ep},
                   {"pp", l->pp},
                   {"dp", l->dp},
                   {"zero", l->zero},
                   {"shard_group", l->shard_group},
                   {"microbatches", l->microbatches},
                   {"prefetch", l->prefetch}};
    const size_t num = sizeof numbers / sizeof *numbers;
    size_t which = (size_t)random_below(r, (int64_t)num + 3);
    if (which < num)
        snprintf(text, size, "layout.%s=%u", numbers[which].name, numbers[which].value);
    else if (which == num)
        snprintf(text, size, "layout.recompute=%s", keepings[l->keeping]);
    else if (which == num + 1)
        snprintf(text, size, "layout.sp=%s", l->sp ? "true" : "false");
    else
        snprintf(text, size, "layout.schedule=%s", tri_search_order_at(l->schedule)->name);
}

static void list_space(search_case *c)
{
    free(c->space.items);
    tri_space_list(&c->facts, &c->of.fixed, &c->space);
    assert_false(c->space.failed);
}

/* Fixes what layouts drawn at random say, until few are left. */
static void narrow(search_case *c, size_t most_layouts)
{
    char text[64];
    c->of.fixed = tri_space_all_free();
    if (random_one_in(&c->random, 10)) {
        c->of.fixed.keeping = TRI_KEEP_FITTING;
        tell(c, " --fix layout.recompute=budget:(all)");
    }
    list_space(c);
    if (c->space.count == 0)
        return;
    tri_layout_choice kept = c->space.items[random_below(&c->random, (int64_t)c->space.count)];
    while (c->space.count > most_layouts) {
        size_t before = c->space.count;
        describe_one(&c->random, &kept, text, sizeof text);
        assert_true(tri_space_fix(&c->of.fixed, text));
        list_space(c);
        if (c->space.count < before)
            tell(c, " --fix %s", text);
    }
}

void search_case_init(search_case *c, uint64_t seed, uint64_t number, size_t most_layouts)
{
    tr_error err = {0};
    *c = (search_case){.random = {.state = seed * 1000003 + number}};
    random_next(&c->random);
    assert_int_equal(tr_settings_create(&c->settings, &err), TR_OK);
    set(c, "run.device=null");
    set(c, "run.threads=1");
    make_model(c);
    make_machine(c);
    narrow(c, most_layouts);
    c->of.settings = c->settings;
    c->of.num_best = random_one_in(&c->random, 3) ? 1 : 8;
    c->of.most_exact = 100000;
    c->of.threads = 2;
}

void search_case_fini(search_case *c)
{
    free(c->space.items);
    tr_settings_destroy(c->settings);
}

/* ---- every layout ---- */

typedef struct looking {
    const search_case *c;
    tri_layout_result *results;
    tr_error *errors;
} looking;

static void look_item(void *context, size_t i)
{
    const looking *l = context;
    if (tri_layout_look(&l->c->of.machine, l->c->settings, TRI_LOOK_ALL, &l->results[i],
                        &l->errors[i]) != TR_OK)
        l->results[i].known = false;
}

tri_layout_result *search_case_look_at_all(const search_case *c, int threads)
{
    looking l = {.c = c,
                 .results = calloc(c->space.count + 1, sizeof *l.results),
                 .errors = calloc(c->space.count + 1, sizeof *l.errors)};
    assert_true(l.results && l.errors);
    for (size_t i = 0; i < c->space.count; i++)
        l.results[i].choice = c->space.items[i];
    tri_parallel_each(threads, c->space.count, look_item, &l);
    for (size_t i = 0; i < c->space.count; i++)
        if (l.errors[i].status != TR_OK)
            fail_msg("%s", l.errors[i].message);
    free(l.errors);
    return l.results;
}
