/* Settings that matter only while another one has some value: a table for the notes. */
#ifndef TRI_CONFIG_NEEDS_H
#define TRI_CONFIG_NEEDS_H

typedef struct tri_need {
    const char *setting;
    const char *other; /* with '>', one of several: "layout.dp|layout.cp" */
    char is;           /* '=': one of values, '!': none of them, '>': more than it */
    const char *value; /* "adam,adamw" */
} tri_need;

extern const tri_need tri_needs[];
extern const int tri_num_needs;

#endif
