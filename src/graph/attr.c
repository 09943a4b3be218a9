/* Which part of the attributes is whose. */
#include <string.h>

#include "graph/op_table.h"

typedef struct piece {
    size_t begin, bytes;
} piece;

#define PIECE(member)                                                                              \
    {                                                                                              \
        offsetof(tri_attr, member), sizeof(((tri_attr *)0)->member)                                \
    }
static const piece pieces[TRI_NUM_ATTR_FAMILIES] = {
    [TRI_ATTR_MATMUL] = PIECE(matmul),     [TRI_ATTR_BIAS_GRAD] = PIECE(bias_grad),
    [TRI_ATTR_ACT] = PIECE(act),           [TRI_ATTR_DROPOUT] = PIECE(dropout),
    [TRI_ATTR_AXPBY] = PIECE(axpby),       [TRI_ATTR_CAST] = PIECE(cast),
    [TRI_ATTR_QUANTISE] = PIECE(quantise), [TRI_ATTR_LOOKUP] = PIECE(lookup),
    [TRI_ATTR_GATHER] = PIECE(gather),     [TRI_ATTR_NORM] = PIECE(norm),
    [TRI_ATTR_ROPE] = PIECE(rope),         [TRI_ATTR_ATTENTION] = PIECE(attention),
    [TRI_ATTR_ROUTE] = PIECE(route),       [TRI_ATTR_GROUPED] = PIECE(grouped),
    [TRI_ATTR_LOSS] = PIECE(loss),         [TRI_ATTR_FINISH] = PIECE(finish),
    [TRI_ATTR_UPDATE] = PIECE(update),     [TRI_ATTR_MESSAGE] = PIECE(message),
};

tri_attr tri_attr_of(tri_op op, const tri_attr *attr)
{
    const piece *own = &pieces[tri_op_get(op)->family];
    tri_attr result;
    memset(&result, 0, sizeof result); /* an initialiser may leave what a member does not cover */
    memcpy(&result, attr, offsetof(tri_attr, matmul)); /* what all have comes first */
    memcpy((char *)&result + own->begin, (const char *)attr + own->begin, own->bytes);
    return result;
}

bool tri_attr_fits(tri_op op, const tri_attr *attr)
{
    static const char zeros[sizeof(tri_attr)];
    const piece *own = &pieces[tri_op_get(op)->family];
    const char *bytes = (const char *)attr;
    const size_t families = offsetof(tri_attr, matmul), end = own->begin + own->bytes;
    if (own->bytes == 0)
        return memcmp(bytes + families, zeros, sizeof *attr - families) == 0;
    return memcmp(bytes + families, zeros, own->begin - families) == 0 &&
           memcmp(bytes + end, zeros, sizeof *attr - end) == 0;
}

tri_epilogue tri_node_epilogue(const tri_node *node)
{
    return node->op == TRI_OP_MATMUL ? node->attr.matmul.epilogue : TRI_EPILOGUE_NONE;
}

int tri_node_norm_dims(const tri_node *node)
{
    bool several = tri_op_get(node->op)->family == TRI_ATTR_NORM && node->attr.norm.dims > 1;
    return several ? node->attr.norm.dims : 1;
}
