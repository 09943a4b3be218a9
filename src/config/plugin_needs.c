/* What a settings file needs to be read: it comes before anything else of the file, so that a kind
 * or a setting that only the plug-in knows is not called unknown. */
#include <string.h>
#include <yaml.h>

#include "config/plugins.h"
#include "config/settings_internal.h"

/* The value of a key of a mapping, or NULL. */
static yaml_node_t *member(yaml_document_t *document, const yaml_node_t *mapping, const char *key)
{
    if (!mapping || mapping->type != YAML_MAPPING_NODE)
        return NULL;
    for (const yaml_node_pair_t *pair = mapping->data.mapping.pairs.start;
         pair < mapping->data.mapping.pairs.top; pair++) {
        const yaml_node_t *name = yaml_document_get_node(document, pair->key);
        if (name && name->type == YAML_SCALAR_NODE &&
            strcmp((const char *)name->data.scalar.value, key) == 0)
            return yaml_document_get_node(document, pair->value);
    }
    return NULL;
}

static const char *file_name(const char *path, size_t length, size_t *name_length)
{
    const char *name = path;
    for (const char *at = path; at < path + length; at++)
        name = *at == '/' ? at + 1 : name;
    *name_length = length - (size_t)(name - path);
    return name;
}

static bool is_loaded(const tr_settings *settings, const char *path, size_t length)
{
    size_t wanted, have;
    const char *name = file_name(path, length, &wanted);
    for (int i = 0; settings->plugins && i < settings->plugins->num; i++) {
        const char *loaded = settings->plugins->plugin[i]->path;
        const char *own = file_name(loaded, strlen(loaded), &have);
        if (have == wanted && strncmp(own, name, have) == 0)
            return true;
    }
    return false;
}

static tr_status check_paths(const tr_settings *settings, const char *name, const char *paths,
                             tr_error *err)
{
    for (const char *at = paths; *at; at += strspn(at, ";")) {
        size_t length = strcspn(at, ";");
        char shown[300];
        snprintf(shown, sizeof shown, "%.*s", (int)(length < 290 ? length : 290), at);
        if (length > 0 && !is_loaded(settings, at, length))
            return tri_fail(err, TR_ERROR_INPUT,
                            "%s needs the plug-in %s (run.plugins), and a settings file does not "
                            "load code by itself: give --plugin %s, or its path where it lies now",
                            name, shown, shown);
        at += length;
    }
    return TR_OK;
}

tr_status tri_settings_check_needs(const tr_settings *settings, const char *name, const char *text,
                                   size_t num_bytes, tr_error *err)
{
    yaml_parser_t parser;
    yaml_document_t document;
    tr_status status = TR_OK;
    if (!memmem(text, num_bytes, "plugins", 7) || !yaml_parser_initialize(&parser))
        return TR_OK;
    yaml_parser_set_input_string(&parser, (const unsigned char *)text, num_bytes);
    if (yaml_parser_load(&parser, &document)) { /* what is wrong with it is told by who reads it */
        const yaml_node_t *run = member(&document, yaml_document_get_root_node(&document), "run");
        const yaml_node_t *value = member(&document, run, "plugins");
        if (value && value->type == YAML_SCALAR_NODE)
            status = check_paths(settings, name, (const char *)value->data.scalar.value, err);
        for (const yaml_node_item_t *item = value && value->type == YAML_SEQUENCE_NODE
                                                ? value->data.sequence.items.start
                                                : NULL;
             item && status == TR_OK && item < value->data.sequence.items.top; item++) {
            const yaml_node_t *one = yaml_document_get_node(&document, *item);
            if (one && one->type == YAML_SCALAR_NODE)
                status = check_paths(settings, name, (const char *)one->data.scalar.value, err);
        }
        yaml_document_delete(&document);
    }
    yaml_parser_delete(&parser);
    return status;
}
