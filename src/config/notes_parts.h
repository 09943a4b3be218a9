/* What the two tables of notes share; see notes.h. */
#ifndef TRI_CONFIG_NOTES_PARTS_H
#define TRI_CONFIG_NOTES_PARTS_H

#include "config/notes.h"

enum { TRI_MAX_NOTE = 400 };

typedef struct tri_note_facts {
    const tr_settings *settings;
    const tri_session *session;
    const tri_compile_config *compile;
    int64_t num_steps;
    bool has_data; /* it has been opened */
} tri_note_facts;

/* notes.c: given, and as something else than the default; a file may list all settings. */
bool tri_note_is_set(const tr_settings *settings, const char *name);
/* The value of a setting, as text. */
void tri_note_show(const tr_settings *settings, const char *name, char out[64]);

/* notes_rules.c: what takes a look at more than one setting */
typedef struct tri_note_rule {
    const char *setting; /* must be set for it; NULL: always */
    bool (*tells)(const tri_note_facts *f, char note[TRI_MAX_NOTE]);
} tri_note_rule;
extern const tri_note_rule tri_note_rules[];
extern const int tri_num_note_rules;

#endif
