/* Measured profiles as files: JSON, with samples as lists of numbers. Fits are not kept: they
 * follow from the samples. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/fs.h"
#include "base/json.h"
#include "sim/measured/measured_parts.h"

static const char format_name[] = "trireme measured profile";
static const char again[] = "measure again: trireme bench device --out FILE";

static tr_status no_memory(tr_error *err)
{
    return tri_fail(err, TR_ERROR_RUNTIME, "no memory for a measured profile");
}

/* ---- writing ---- */

static void put_sample(json_t *list, const tri_work_sample *s)
{
    json_t *item = json_array();
    json_array_append_new(item, json_real(s->seconds));
    json_array_append_new(item, json_real(s->times));
    json_array_append_new(item, json_real(s->flops));
    json_array_append_new(item, json_real(s->bytes));
    for (int k = 0; k < TRI_WORK_SIZES; k++)
        json_array_append_new(item, json_real(s->size[k]));
    json_array_append_new(list, item);
}

static void put_row(json_t *list, const tri_measured_row *row)
{
    json_t *item = json_object(), *samples = json_array();
    json_object_set_new(item, "op", json_string(tri_op_get(row->op)->name));
    json_object_set_new(item, "kind", json_string(row->kind));
    for (size_t i = 0; i < row->num; i++)
        put_sample(samples, &row->samples[i]);
    json_object_set_new(item, "samples", samples);
    json_array_append_new(list, item);
}

static void put_table(json_t *list, const tri_measured_table *table)
{
    json_t *item = json_object(), *rows = json_array(), *steps = json_array();
    json_object_set_new(item, "ranks", json_integer(table->ranks));
    json_object_set_new(item, "threads", json_integer(table->threads));
    for (size_t i = 0; i < table->num_steps; i++) {
        const tri_measured_step *s = &table->steps[i];
        json_t *step = json_object();
        json_object_set_new(step, "name", json_string(s->name));
        json_object_set_new(step, "seconds", json_real(s->seconds));
        json_object_set_new(step, "predicted_seconds", json_real(s->predicted));
        json_object_set_new(step, "instruction_seconds", json_real(s->instr_seconds));
        json_object_set_new(step, "launches", json_real(s->launches));
        json_object_set_new(step, "sampled", json_boolean(s->seen));
        json_array_append_new(steps, step);
    }
    for (size_t r = 0; r < table->num; r++)
        put_row(rows, &table->rows[r]);
    json_object_set_new(item, "steps", steps);
    json_object_set_new(item, "work", rows);
    json_array_append_new(list, item);
}

static void put_head(json_t *root, const tri_measured *p)
{
    json_object_set_new(root, "format", json_string(format_name));
    json_object_set_new(root, "format_version", json_integer(TRI_MEASURED_VERSION));
    json_object_set_new(root, "device", json_string(p->device));
    json_object_set_new(root, "kind", json_string(p->kind));
    json_object_set_new(root, "model", json_string(p->model));
    json_object_set_new(root, "isa", json_string(p->isa));
    json_object_set_new(root, "date", json_string(p->date));
    json_object_set_new(root, "version", json_string(p->version));
    json_object_set_new(root, "libraries", json_string(p->libraries));
    json_object_set_new(root, "cores", json_integer(p->cores));
    json_object_set_new(root, "clock_mhz", json_real(p->clock_mhz));
    json_object_set_new(root, "memory_bytes", json_real(p->memory_bytes));
    json_object_set_new(root, "memory_bytes_per_s", json_real(p->memory_bytes_per_s));
    json_t *rates = json_object(), *together = json_array();
    for (int r = 0; r < TRI_NUM_RATES; r++)
        if (p->dense[r] > 0)
            json_object_set_new(rates, tri_rate_name((tri_rate)r), json_real(p->dense[r]));
    for (int op = 0; op < TRI_NUM_OPS; op++)
        if (p->together[op])
            json_array_append_new(together, json_string(tri_op_get((tri_op)op)->name));
    json_object_set_new(root, "flops_per_s", rates);
    json_object_set_new(root, "launched_together", together);
}

static json_t *document_of(const tri_measured *p)
{
    json_t *root = json_object(), *messages = json_array(), *tables = json_array();
    put_head(root, p);
    for (size_t i = 0; i < p->num_messages; i++) {
        const tri_measured_message *m = &p->messages[i];
        json_t *item = json_object();
        json_object_set_new(item, "op", json_string(tri_coll_name(m->coll)));
        json_object_set_new(item, "ranks", json_integer(m->ranks));
        json_object_set_new(item, "bytes", json_real(m->bytes));
        json_object_set_new(item, "seconds", json_real(m->seconds));
        json_array_append_new(messages, item);
    }
    for (int t = 0; t < p->num_tables; t++)
        put_table(tables, &p->tables[t]);
    json_object_set_new(root, "messages", messages);
    json_object_set_new(root, "tables", tables);
    return root;
}

tr_status tri_measured_write(const tri_measured *profile, const char *path, tr_error *err)
{
    TRI_TRY(tri_measured_check_path(path, err));
    tri_json_begin();
    json_t *root = document_of(profile);
    char *text = tri_json_dump(root, JSON_COMPACT | JSON_REAL_PRECISION(9));
    json_decref(root);
    if (!text)
        return no_memory(err);
    tr_status status = tri_file_replace(path, text, strlen(text), err);
    free(text);
    return status;
}

/* ---- reading ---- */

static tr_status damaged(tr_error *err, const char *path, const char *what)
{
    return tri_fail(err, TR_ERROR_INPUT, "%s: %s is missing or makes no sense; %s", path, what,
                    again);
}

/* A number that is finite and not below 0; NAN otherwise. */
static double number_of(const json_t *value)
{
    double number = json_is_number(value) ? json_number_value(value) : NAN;
    return number >= 0 && isfinite(number) ? number : NAN;
}

static bool get_number(const json_t *object, const char *key, double *to)
{
    *to = number_of(json_object_get(object, key));
    return !isnan(*to);
}

static bool get_count(const json_t *object, const char *key, int most, int *to)
{
    double value = number_of(json_object_get(object, key));
    if (isnan(value) || value > most || value != floor(value))
        return false;
    *to = (int)value;
    return true;
}

static bool get_text(const json_t *object, const char *key, char *to, size_t size)
{
    const char *text = json_string_value(json_object_get(object, key));
    if (!text || strlen(text) >= size)
        return false;
    memcpy(to, text, strlen(text) + 1);
    return true;
}

/* TRI_NUM_OPS when there is none of that name. */
static tri_op op_of(const json_t *value)
{
    const char *name = json_string_value(value);
    int op = 0;
    while (op < TRI_NUM_OPS && (!name || strcmp(tri_op_get((tri_op)op)->name, name) != 0))
        op++;
    return (tri_op)op;
}

static bool read_head(const json_t *root, tri_measured *p)
{
    bool good = get_text(root, "device", p->device, sizeof p->device) &&
                get_text(root, "kind", p->kind, sizeof p->kind) &&
                get_text(root, "model", p->model, sizeof p->model) &&
                get_text(root, "isa", p->isa, sizeof p->isa) &&
                get_text(root, "date", p->date, sizeof p->date) &&
                get_text(root, "version", p->version, sizeof p->version) &&
                get_text(root, "libraries", p->libraries, sizeof p->libraries) &&
                get_count(root, "cores", 1 << 20, &p->cores) &&
                get_number(root, "clock_mhz", &p->clock_mhz) &&
                get_number(root, "memory_bytes", &p->memory_bytes) &&
                get_number(root, "memory_bytes_per_s", &p->memory_bytes_per_s);
    const json_t *rates = json_object_get(root, "flops_per_s"), *op;
    for (int r = 0; r < TRI_NUM_RATES; r++)
        if (json_object_get(rates, tri_rate_name((tri_rate)r)))
            good &= get_number(rates, tri_rate_name((tri_rate)r), &p->dense[r]);
    size_t i;
    json_array_foreach(json_object_get(root, "launched_together"), i, op)
    {
        if (op_of(op) < TRI_NUM_OPS)
            p->together[op_of(op)] = true;
    }
    return good && json_is_object(rates);
}

static bool read_sample(const json_t *item, tri_work *work, double *seconds)
{
    double value[4 + TRI_WORK_SIZES];
    if (json_array_size(item) != 4 + TRI_WORK_SIZES)
        return false;
    for (size_t k = 0; k < 4 + TRI_WORK_SIZES; k++) {
        value[k] = number_of(json_array_get(item, k));
        if (isnan(value[k]))
            return false;
    }
    *seconds = value[0];
    work->flops = value[2];
    work->bytes = value[3];
    memcpy(work->size, value + 4, sizeof work->size);
    return value[0] > 0 && value[1] >= 1;
}

/* An operator that this program does not know is passed over: the file is of another version. */
static tr_status read_row(const char *path, const json_t *item, tri_measured_table *table,
                          tr_error *err)
{
    tri_work work = {.op = op_of(json_object_get(item, "op"))};
    const json_t *samples = json_object_get(item, "samples"), *sample;
    if (!json_is_string(json_object_get(item, "op")) || !json_array_size(samples) ||
        !get_text(item, "kind", work.kind, sizeof work.kind))
        return damaged(err, path, "a kind of work");
    if (work.op == TRI_NUM_OPS)
        return TR_OK;
    size_t i;
    json_array_foreach(samples, i, sample)
    {
        double seconds;
        if (!read_sample(sample, &work, &seconds))
            return damaged(err, path, "a sample");
        if (!tri_measured_add(table, &work, seconds))
            return no_memory(err);
    }
    return TR_OK;
}

static tr_status read_step(const char *path, const json_t *item, tri_measured_table *table,
                           tr_error *err)
{
    tri_measured_step step = {.seen = json_is_true(json_object_get(item, "sampled"))};
    if (!get_text(item, "name", step.name, sizeof step.name) ||
        !get_number(item, "seconds", &step.seconds) ||
        !get_number(item, "predicted_seconds", &step.predicted) ||
        !get_number(item, "instruction_seconds", &step.instr_seconds) ||
        !get_number(item, "launches", &step.launches) || step.seconds <= 0)
        return damaged(err, path, "a step");
    return tri_measured_add_step(table, &step) ? TR_OK : no_memory(err);
}

static tr_status read_table(const char *path, const json_t *item, tri_measured *p, tr_error *err)
{
    const json_t *each;
    int ranks, threads;
    size_t i;
    bool good = get_count(item, "ranks", 1 << 20, &ranks) &&
                get_count(item, "threads", 1 << 20, &threads) &&
                !tri_measured_find(p, ranks, threads);
    tri_measured_table *table = good ? tri_measured_table_of(p, ranks, threads) : NULL;
    if (!table || !json_array_size(json_object_get(item, "work")))
        return damaged(err, path, "a table");
    json_array_foreach(json_object_get(item, "steps"), i, each)
    {
        TRI_TRY(read_step(path, each, table, err));
    }
    json_array_foreach(json_object_get(item, "work"), i, each)
    {
        TRI_TRY(read_row(path, each, table, err));
    }
    return TR_OK;
}

static tr_status read_message(const char *path, const json_t *item, tri_measured *p, tr_error *err)
{
    tri_measured_message m = {0};
    const char *name = json_string_value(json_object_get(item, "op"));
    if (!name || !tri_coll_parse(name, &m.coll) || !get_count(item, "ranks", 1 << 20, &m.ranks) ||
        !get_number(item, "bytes", &m.bytes) || !get_number(item, "seconds", &m.seconds) ||
        m.bytes <= 0 || m.seconds <= 0 || m.ranks < 2)
        return damaged(err, path, "a message");
    return tri_measured_add_message(p, &m) ? TR_OK : no_memory(err);
}

/* That it is a profile, of a version that is known here. */
static tr_status check_format(const char *path, const json_t *root, tr_error *err)
{
    const char *format = json_string_value(json_object_get(root, "format"));
    const json_t *version = json_object_get(root, "format_version");
    if (!format || strcmp(format, format_name) != 0)
        return tri_fail(err, TR_ERROR_INPUT,
                        "%s is not a measured profile; trireme bench device --out FILE makes one",
                        path);
    if (json_integer_value(version) != TRI_MEASURED_VERSION)
        return tri_fail(err, TR_ERROR_INPUT,
                        "%s is a profile of version %lld, this program knows version %d; %s", path,
                        (long long)json_integer_value(version), TRI_MEASURED_VERSION, again);
    return TR_OK;
}

static tr_status read_document(const char *path, const json_t *root, tri_measured *p, tr_error *err)
{
    const json_t *each;
    size_t i;
    TRI_TRY(check_format(path, root, err));
    if (!read_head(root, p))
        return damaged(err, path, "what it says of the device");
    json_array_foreach(json_object_get(root, "messages"), i, each)
    {
        TRI_TRY(read_message(path, each, p, err));
    }
    json_array_foreach(json_object_get(root, "tables"), i, each)
    {
        TRI_TRY(read_table(path, each, p, err));
    }
    return p->num_tables ? TR_OK : damaged(err, path, "every table");
}

tr_status tri_measured_read(const char *path, tri_measured *profile, tr_error *err)
{
    json_t *root;
    json_error_t why;
    *profile = (tri_measured){0};
    tr_status status = tri_json_load_file(path, 0, &root, &why, err);
    if (status != TR_OK) {
        if (status == TR_ERROR_INPUT && why.line > 0)
            tri_advise(err, status, "it is damaged, or no profile; %s", again);
        return status;
    }
    status = read_document(path, root, profile, err);
    json_decref(root);
    if (status == TR_OK)
        tri_measured_settle(profile);
    else
        tri_measured_fini(profile);
    return status;
}

/* Over an earlier profile, whatever its version, and over nothing else. */
tr_status tri_measured_check_path(const char *path, tr_error *err)
{
    TRI_TRY(tri_check_output(path, false, err));
    if (!tri_path_exists(path))
        return TR_OK;
    json_t *root;
    json_error_t why;
    tr_status status = tri_json_load_file(path, 0, &root, &why, NULL);
    const char *format =
        status == TR_OK ? json_string_value(json_object_get(root, "format")) : NULL;
    bool profile = format && strcmp(format, format_name) == 0;
    if (status == TR_OK)
        json_decref(root);
    return profile ? TR_OK
                   : tri_fail(err, TR_ERROR_INPUT,
                              "%s is there and is not a measured profile, so it is left alone; "
                              "give --out another name",
                              path);
}
