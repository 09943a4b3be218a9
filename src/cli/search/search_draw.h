/* trireme plan --search --draw DIR: pictures of what was found, in a folder. */
#ifndef TRI_CLI_SEARCH_SEARCH_DRAW_H
#define TRI_CLI_SEARCH_SEARCH_DRAW_H

#include "cli/search/plan_search.h"
#include "search/picture/search_picture.h"
#include "sim/picture/picture.h"

/* Whether its files may be written, before the work: nothing but pictures of ours is replaced. */
tr_status tri_plan_search_may_draw(const tri_cli *cli, tr_error *err);
/* All of them, where --draw is given and something was found. Sizes of the machine are tried, and
 * it is put back. */
tr_status tri_plan_search_draw(tri_plan_search *p, tr_error *err);

/* search_draw_winner.c: the wanted pictures of a step of the winner, into texts that are empty. */
tr_status tri_plan_search_draw_winner(const tri_plan_search *p, const char *title,
                                      const bool wanted[TRI_NUM_PICTURES],
                                      tri_text text[TRI_NUM_PICTURES], tr_error *err);
/* search_draw_sizes.c: the fastest layout of other numbers of devices, with few looks. */
enum { TRI_PLAN_SEARCH_SIZES = 7 };
tr_status tri_plan_search_scaling(tri_plan_search *p,
                                  tri_scaling_point points[TRI_PLAN_SEARCH_SIZES], size_t *num,
                                  tr_error *err);

#endif
