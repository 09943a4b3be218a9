#include "place/moves.h"

typedef struct move_planner {
    int rank;
    tri_placement now;
    const tri_placement *to;
    tri_moves *moves;
} move_planner;

/* Whether what a dim has is the beginning of what it is to have. */
static bool begins_target(const move_planner *p, int dim)
{
    const tri_entries *now = &p->now.dim[dim], *to = &p->to->dim[dim];
    for (int i = 0; i < now->num; i++)
        if (i >= to->num || now->set[i] != to->set[i])
            return false;
    return true;
}

/* Entries at the end of a list that the target does not have there. */
static int num_to_lose(const move_planner *p, int dim)
{
    const tri_entries *now = &p->now.dim[dim], *to = &p->to->dim[dim];
    int same = 0;
    while (same < now->num && same < to->num && now->set[same] == to->set[same])
        same++;
    return now->num - same;
}

static tr_status add(move_planner *p, tri_move move, tr_error *err)
{
    if (p->moves->num == TRI_MAX_MOVES)
        return tri_fail(err, TR_ERROR_INTERNAL, "more moves than there can be");
    move.after = p->now;
    p->moves->move[p->moves->num++] = move;
    return TR_OK;
}

/* Gives a dim the next entries of the target, as far as `ready` has all of their factors. */
static int gain(move_planner *p, int dim, tri_factor_set ready, tri_factor_set *over)
{
    tri_entries *now = &p->now.dim[dim];
    const tri_entries *to = &p->to->dim[dim];
    int num = 0;
    *over = 0;
    if (!begins_target(p, dim))
        return 0;
    for (; now->num < to->num && (to->set[now->num] & ~ready) == 0; num++) {
        *over |= to->set[now->num];
        now->set[now->num] = to->set[now->num];
        now->num++;
    }
    return num;
}

static bool slice(move_planner *p, tr_error *err, tr_status *status)
{
    tri_move move = {.kind = TRI_MOVE_SLICE, .from_dim = -1, .before = p->now};
    tri_factor_set whole = (tri_factor_set) ~(tri_placement_cut(&p->now) | p->now.partial);
    for (move.to_dim = 0; move.to_dim < p->rank; move.to_dim++) {
        move.num_entries = gain(p, move.to_dim, whole, &move.over);
        if (move.num_entries == 0)
            continue;
        *status = add(p, move, err);
        return true;
    }
    return false;
}

static bool scatter(move_planner *p, tr_error *err, tr_status *status)
{
    tri_move move = {.kind = TRI_MOVE_REDUCE_SCATTER, .from_dim = -1, .before = p->now};
    tri_factor_set ready = p->now.partial & ~p->to->partial;
    for (move.to_dim = 0; move.to_dim < p->rank; move.to_dim++) {
        move.num_entries = gain(p, move.to_dim, ready, &move.over);
        if (move.num_entries == 0)
            continue;
        p->now.partial &= (tri_factor_set)~move.over;
        *status = add(p, move, err);
        return true;
    }
    return false;
}

/* The last entries of one dim that are the next of another, as many as there are. */
static bool exchange(move_planner *p, tr_error *err, tr_status *status)
{
    tri_move move = {.kind = TRI_MOVE_ALL_TO_ALL, .before = p->now};
    for (move.from_dim = 0; move.from_dim < p->rank; move.from_dim++)
        for (int num = num_to_lose(p, move.from_dim); num > 0; num--) {
            tri_entries *from = &p->now.dim[move.from_dim];
            for (move.to_dim = 0; move.to_dim < p->rank; move.to_dim++) {
                tri_entries *to = &p->now.dim[move.to_dim];
                const tri_entries *target = &p->to->dim[move.to_dim];
                bool fits = move.to_dim != move.from_dim && begins_target(p, move.to_dim) &&
                            to->num + num <= target->num;
                for (int i = 0; i < num && fits; i++)
                    fits = from->set[from->num - num + i] == target->set[to->num + i];
                if (!fits)
                    continue;
                for (int i = 0; i < num; i++) {
                    move.over |= target->set[to->num];
                    to->set[to->num] = target->set[to->num];
                    to->num++;
                }
                for (int i = 0; i < num; i++)
                    from->set[--from->num] = 0;
                move.num_entries = num;
                *status = add(p, move, err);
                return true;
            }
        }
    return false;
}

/* Whatever is still to be complete: at once, since one sum over all is less than one after another,
 * and now, since vectors only grow from here. */
static bool reduce(move_planner *p, tr_error *err, tr_status *status)
{
    tri_move move = {.kind = TRI_MOVE_ALL_REDUCE, .from_dim = -1, .to_dim = -1, .before = p->now};
    move.over = p->now.partial & ~p->to->partial;
    if (move.over == 0)
        return false;
    p->now.partial = p->to->partial;
    *status = add(p, move, err);
    return true;
}

/* Whether the entry at a place of a list can be exchanged once it is the last. */
static bool waits_for_exchange(const move_planner *p, int dim, int place)
{
    for (int d = 0; d < p->rank; d++) {
        int has = p->now.dim[d].num;
        if (d != dim && begins_target(p, d) && has < p->to->dim[d].num &&
            p->to->dim[d].set[has] == p->now.dim[dim].set[place])
            return true;
    }
    return false;
}

static bool gather(move_planner *p, tr_error *err, tr_status *status)
{
    tri_move move = {.kind = TRI_MOVE_ALL_GATHER, .to_dim = -1, .before = p->now};
    for (move.from_dim = 0; move.from_dim < p->rank; move.from_dim++) {
        tri_entries *from = &p->now.dim[move.from_dim];
        int most = num_to_lose(p, move.from_dim);
        if (most == 0)
            continue;
        do {
            move.over |= from->set[from->num - 1];
            from->set[--from->num] = 0;
            move.num_entries++;
        } while (move.num_entries < most && !waits_for_exchange(p, move.from_dim, from->num - 1));
        *status = add(p, move, err);
        return true;
    }
    return false;
}

tr_status tri_plan_moves(int rank, const tri_placement *from, const tri_placement *to,
                         tri_moves *moves, tr_error *err)
{
    move_planner p = {.rank = rank, .now = *from, .to = to, .moves = moves};
    tr_status status = TR_OK;
    moves->num = 0;
    if (to->partial & ~from->partial)
        return tri_fail(err, TR_ERROR_INTERNAL, "a move cannot make terms of a sum");
    while (status == TR_OK &&
           (slice(&p, err, &status) || scatter(&p, err, &status) || exchange(&p, err, &status) ||
            reduce(&p, err, &status) || gather(&p, err, &status)))
        ;
    return status;
}
