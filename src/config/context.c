/* Context parallelism: from layout.cp, cp_kind, cp_heads and cp_deal to the mesh and to who gets
 * which tokens. */
#include <string.h>

#include "config/resolve.h"

/* The largest number up to `most` of ranks that heads can be divided over: a key head for each, or
 * each key head on equally many. `keys` and `heads` are those of one tensor-parallel rank. */
static int64_t fitting_heads(int64_t most, int64_t cp, int64_t keys, int64_t heads)
{
    while (most > 1 &&
           (cp % most != 0 || most > heads || (most > keys && (keys == 0 || most % keys != 0))))
        most--;
    return most;
}

/* Key heads of the tensor-parallel rank that has fewest; 1 where several share one. Where ranks
 * have different numbers, no head can be on several ranks of cp: they could not agree on how many.
 */
static int64_t keys_of_rank(const tri_compile_config *compile, bool *even)
{
    int tp = tri_mesh_size(&compile->mesh, TRI_AXIS_TP);
    int64_t keys =
        compile->model.num_kv_heads > 0 ? compile->model.num_kv_heads : compile->model.num_heads;
    *even = tri_mesh_size(&compile->mesh, TRI_AXIS_KV_COPY) > 1 || keys % tp == 0;
    return keys >= tp ? keys / tp : 1;
}

static tr_status divide_heads(tri_compile_config *compile, bool ulysses, int64_t wanted,
                              tr_error *err)
{
    int64_t cp = tri_mesh_size(&compile->mesh, TRI_AXIS_CP);
    int64_t heads = compile->model.num_heads / tri_mesh_size(&compile->mesh, TRI_AXIS_TP);
    bool even;
    int64_t keys = keys_of_rank(compile, &even);
    int64_t most = even ? heads : keys;
    int64_t fits = fitting_heads(wanted, cp, keys, most);
    if (fits != wanted && ulysses)
        return tri_fail(err, TR_ERROR_INPUT,
                        "layout.cp_kind is ulysses with layout.cp=%lld, but a rank has %lld heads "
                        "and %lld key heads to exchange its tokens for: ranks must divide them, or "
                        "share each key head evenly; use layout.cp_kind=ring with "
                        "layout.cp_heads=%lld",
                        (long long)cp, (long long)heads, (long long)keys, (long long)fits);
    if (fits != wanted)
        return tri_fail(
            err, TR_ERROR_INPUT,
            "layout.cp_heads is %lld: it must divide layout.cp=%lld, and the %lld heads and %lld "
            "key heads of a rank must divide over it; use layout.cp_heads=%lld",
            (long long)wanted, (long long)cp, (long long)heads, (long long)keys, (long long)fits);
    compile->mesh.size[TRI_AXIS_CP_HEADS] = (int)wanted;
    compile->mesh.size[TRI_AXIS_CP_COPY] = (int)(wanted > keys ? wanted / keys : 1);
    return TR_OK;
}

/* Every rank has some token of every row. */
static tr_status check_tokens(const tri_compile_config *compile, tr_error *err)
{
    int64_t cp = tri_mesh_size(&compile->mesh, TRI_AXIS_CP);
    int64_t tp = compile->sp ? tri_mesh_size(&compile->mesh, TRI_AXIS_TP) : 1;
    if (compile->seq_len >= cp * tp)
        return TR_OK;
    return tri_fail(err, TR_ERROR_INPUT,
                    "layout.cp%s is %lld, but rows have %lld tokens (data.seq_len), which leaves "
                    "ranks without any; use layout.cp=%lld at most",
                    tp > 1 ? " x layout.tp with layout.sp" : "", (long long)(cp * tp),
                    (long long)compile->seq_len,
                    (long long)(compile->seq_len / tp > 0 ? compile->seq_len / tp : 1));
}

/* What suits the mask: nothing needs to be balanced where all tokens see as much, nearly all of
 * them (a window that is short beside a rank's run of tokens), or where ranks have all tokens of
 * their heads. */
static tri_deal_kind deal_of(const char *word, const tri_compile_config *compile)
{
    static const char *const words[] = {"plain", "zigzag", "balanced"};
    int64_t ring = tri_mesh_size(&compile->mesh, TRI_AXIS_CP_RING), window = compile->model.window;
    bool even = !tri_model_of(&compile->model)->generates ||
                (window > 0 && 4 * window <= compile->seq_len / ring);
    if (ring == 1)
        return TRI_DEAL_PLAIN;
    for (int kind = 0; kind < 3; kind++)
        if (strcmp(word, words[kind]) == 0)
            return (tri_deal_kind)kind;
    return compile->mask_documents ? TRI_DEAL_BALANCED : even ? TRI_DEAL_PLAIN : TRI_DEAL_ZIGZAG;
}

/* Where documents or a window hide keys from a rank, it is sent those that it sees alone. */
static tri_attention_keys keys_of(const char *kind, const tri_compile_config *compile)
{
    if (strcmp(kind, "gather") != 0)
        return TRI_KEYS_RING;
    bool hides = compile->mask_documents ||
                 (compile->model.window > 0 && compile->model.window < compile->seq_len);
    return hides ? TRI_KEYS_SEEN : TRI_KEYS_GATHERED;
}

tr_status tri_context_config(const tr_settings *s, tri_session_config *config, tr_error *err)
{
    tri_compile_config *compile = &config->compile;
    const char *kind = tr_settings_string(s, "layout.cp_kind");
    int64_t cp = tr_settings_int(s, "layout.cp"), heads = tr_settings_int(s, "layout.cp_heads");
    bool ulysses = strcmp(kind, "ulysses") == 0;
    if (cp == 1)
        return TR_OK;
    if (!tri_model_of(&compile->model)->sequences)
        return tri_fail(err, TR_ERROR_INPUT,
                        "layout.cp is %lld, but an %s has no tokens to divide; use layout.dp",
                        (long long)cp, compile->model.kind);
    TRI_TRY(check_tokens(compile, err));
    TRI_TRY(divide_heads(compile, ulysses, ulysses ? cp : heads, err));
    compile->cp_keys = keys_of(kind, compile);
    config->deal = deal_of(tr_settings_string(s, "layout.cp_deal"), compile);
    return TR_OK;
}
