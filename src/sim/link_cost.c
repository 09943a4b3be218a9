#include "sim/link_cost.h"

#include <math.h>

static double tier_rate(const tri_cluster *cluster, uint32_t t, const tri_link_terms *terms)
{
    return cluster->tier[t].bytes_per_s * (t == 0 ? terms->near_share : terms->far_share);
}

/* Of the bytes of a call, those that a rank sends; all_reduce is twice a half. */
static double sent_share(tri_coll coll, double size)
{
    switch (coll) {
    case TRI_COLL_BARRIER:
        return 0;
    case TRI_COLL_BROADCAST:
    case TRI_COLL_REDUCE:
        return 1;
    default:
        return (size - 1) / size;
    }
}

/* The slowest tier that the rings pass through. A torus sends both ways, over each axis that the
 * group has: without knowing its shape, over one. */
static double ring_seconds(const tri_cluster *cluster, const tri_group_span *span, tri_coll coll,
                           double size, double bytes, const tri_link_terms *terms)
{
    bool own = coll == TRI_COLL_ALL_TO_ALL; /* what leaves a domain is each member's own */
    double slowest = 0;
    for (uint32_t t = 0; t <= span->tier; t++) {
        double rate = tier_rate(cluster, t, terms) * (cluster->tier[t].torus_axes > 0 ? 2 : 1);
        double here = t > 0 ? span->inside[t - 1] : 1;
        double leaving = own ? (size - here) / size : sent_share(coll, size) / here;
        slowest = fmax(slowest, bytes * leaving / rate);
    }
    double start = cluster->tier[span->tier].latency_s * (1 + log2(size));
    return (coll == TRI_COLL_ALL_REDUCE ? 2 : 1) * (slowest + start);
}

/* How the group lies: members of a node, then nodes. */
static tri_coll_shape shape_of(const tri_rank_group *group, const tri_group_span *span)
{
    tri_coll_shape shape = tri_shape_flat((int)group->size);
    uint32_t inside = span->inside[0];
    if (span->tier > 0 && inside > 1 && group->size % inside == 0) {
        shape.num_dims = 2;
        shape.dim[0] = (int)inside;
        shape.dim[1] = (int)(group->size / inside);
    }
    return shape;
}

static double algorithm_seconds(const tri_cluster *cluster, const tri_rank_group *group,
                                const tri_group_span *span, tri_coll coll, double bytes,
                                const tri_link_terms *terms)
{
    tri_coll_shape shape = shape_of(group, span);
    if (!tri_algorithm_supports(terms->algorithm, coll, &shape))
        shape = tri_shape_flat((int)group->size);
    if (!tri_algorithm_supports(terms->algorithm, coll, &shape))
        return ring_seconds(cluster, span, coll, group->size, bytes, terms);
    tri_coll_cost cost = terms->algorithm->cost(coll, &shape, bytes);
    const tri_tier *far = &cluster->tier[span->tier], *near = &cluster->tier[0];
    double far_beta = 1 / tier_rate(cluster, span->tier, terms);
    bool has_dims = cost.outer_alpha_count > 0 || cost.outer_beta_bytes > 0;
    if (span->tier == 0 || !has_dims)
        return cost.alpha_count * far->latency_s + cost.beta_bytes * far_beta;
    return cost.outer_alpha_count * far->latency_s + cost.outer_beta_bytes * far_beta +
           (cost.alpha_count - cost.outer_alpha_count) * near->latency_s +
           (cost.beta_bytes - cost.outer_beta_bytes) / tier_rate(cluster, 0, terms);
}

double tri_link_collective(const tri_cluster *cluster, const tri_rank_group *group, tri_coll coll,
                           double bytes, const tri_link_terms *terms)
{
    if (group->size < 2)
        return 0;
    tri_group_span span = tri_cluster_span(cluster, group);
    if (terms->algorithm && terms->algorithm->cost)
        return algorithm_seconds(cluster, group, &span, coll, bytes, terms);
    return ring_seconds(cluster, &span, coll, group->size, bytes, terms);
}

double tri_link_send(const tri_cluster *cluster, uint32_t from, uint32_t to, double bytes,
                     const tri_link_terms *terms)
{
    uint32_t tier = tri_cluster_tier_between(cluster, from, to);
    return bytes / tier_rate(cluster, tier, terms) + cluster->tier[tier].latency_s;
}
