/* Advice as a JSON document. */
#include <math.h>

#include "cli/advise/advise.h"
#include "cli/doc/json_doc.h"

static void put_layout(json_t *item, const tri_advised_layout *l)
{
    const struct {
        const char *key;
        int64_t value;
    } sizes[] = {{"dp", l->dp},
                 {"tp", l->tp},
                 {"cp", l->cp},
                 {"pp", l->pp},
                 {"ep", l->ep},
                 {"zero", l->zero},
                 {"microbatches", l->microbatches}};
    json_t *layout = tri_doc_object(item, "layout");
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        tri_doc_count(layout, sizes[i].key, sizes[i].value);
    tri_doc_flag(layout, "sp", l->sp);
    tri_doc_text(layout, "recompute", tri_advised_redo_value(l->redo));
    tri_doc_text(layout, "lanes", l->group_lanes ? "group" : "one");
}

static void put_trial(json_t *item, const tri_advised_trial *t)
{
    put_layout(item, &t->layout);
    tri_doc_text(item, "refused", *t->refused ? t->refused : NULL);
    tri_doc_count_from(item, "plan_bytes", (int64_t)t->plan_bytes, 1);
    tri_doc_flag(item, "fits", t->fits);
    tri_doc_number(item, "step_ms", t->timed ? 1e3 * t->seconds : (double)NAN);
    tri_doc_number(item, "mfu", t->timed ? t->mfu : (double)NAN);
    json_t *axes = tri_doc_list(item, "axes");
    for (uint32_t a = 0; a < t->num_axes; a++) {
        json_t *axis = tri_doc_item(axes);
        tri_doc_text(axis, "axis", t->axes[a].name);
        tri_doc_number(axis, "bytes", t->axes[a].bytes);
        tri_doc_number(axis, "exposed_ms", 1e3 * t->axes[a].exposed_s);
        tri_doc_number(axis, "hidden_ms", 1e3 * t->axes[a].hidden_s);
    }
}

static void put_question(json_t *list, const tri_advice *advice, const tri_advised_question *q)
{
    json_t *item = tri_doc_item(list);
    tri_doc_text(item, "name", q->name);
    tri_doc_text(item, "question", q->asks);
    tri_doc_text(item, "answer", q->answer);
    tri_doc_text(item, "rule", q->rule);
    json_t *numbers = tri_doc_object(item, "numbers");
    for (int i = 0; i < q->num_numbers; i++)
        tri_doc_number(numbers, q->numbers[i].key, q->numbers[i].value);
    json_t *tried = tri_doc_list(item, "tried");
    for (int i = 0; i < q->num_shown; i++)
        put_trial(tri_doc_item(tried), &advice->trials[q->shown[i]]);
    json_t *settings = tri_doc_list(item, "settings");
    for (int i = 0; i < q->num_settings; i++)
        tri_doc_text_item(settings, q->settings[i]);
}

tr_status tri_advice_json(const tri_advice *advice, const char *command, tr_error *err)
{
    json_t *doc = tri_doc_begin();
    const tri_advised_model *model = &advice->model;
    tri_doc_text(doc, "model", model->name);
    tri_doc_number(doc, "parameters", model->params);
    tri_doc_number(doc, "active_parameters", model->active);
    tri_doc_count(doc, "rows", model->batch);
    tri_doc_count(doc, "row_tokens", model->seq_len);
    tri_doc_text(doc, "device", tri_sim_machine_device(advice->machine)->name);
    tri_doc_text(doc, "cluster", advice->machine->model.cluster.name);
    tri_doc_count(doc, "devices", advice->devices);
    tri_doc_count(doc, "node_devices", advice->node);
    tri_doc_count(doc, "memory_bytes", (int64_t)advice->memory_bytes);
    tri_doc_count(doc, "room_bytes", (int64_t)advice->room_bytes);
    json_t *list = tri_doc_list(doc, "questions");
    for (int i = 0; i < advice->num_questions; i++)
        put_question(list, advice, &advice->questions[i]);
    tri_doc_flag(doc, "fits", advice->chosen >= 0);
    if (advice->chosen >= 0)
        put_trial(tri_doc_object(doc, "advised"), &advice->trials[advice->chosen]);
    else
        tri_doc_null(doc, "advised");
    put_trial(tri_doc_object(doc, "smallest"), &advice->trials[advice->smallest]);
    tri_doc_count_from(doc, "devices_needed", advice->devices_needed, 1);
    tri_doc_text(doc, "command", advice->chosen >= 0 ? command : NULL);
    tri_doc_count(doc, "layouts_compiled", advice->num_trials);
    tri_doc_count(doc, "layouts_timed", advice->num_timed);
    return tri_doc_print(doc, stdout, err);
}
