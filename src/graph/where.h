/* Where memory lies: the places that a value can be at. */
#ifndef TRI_GRAPH_WHERE_H
#define TRI_GRAPH_WHERE_H

/* In the order of distance from the device's kernels: fetch goes one step nearer, stash one step
 * farther. */
typedef enum tri_where {
    TRI_WHERE_DEVICE, /* the device's own memory */
    TRI_WHERE_HOST,   /* the machine's, pinned where the device copies by itself */
    TRI_WHERE_FILE,   /* a scratch file: only fetch and stash touch it */
    TRI_NUM_WHERE
} tri_where;

static inline const char *tri_where_name(tri_where where)
{
    static const char *const names[TRI_NUM_WHERE] = {"device", "host", "file"};
    return names[where];
}

#endif
