/* The program of a rank's step: the document of `trireme explain --json`. */
#include "cli/doc/docs.h"
#include "cli/view/view_parts.h"

tr_status tri_view_program(tri_view *view, const tri_http_target *query, json_t *doc, tr_error *err)
{
    tri_view_layout *layout;
    const tri_session *session;
    int64_t rank = 0;
    TRI_TRY(tri_view_layout_of(view, query, &layout, err));
    TRI_TRY(tri_view_query_int(query, "rank", 0, layout->num_ranks - 1, &rank, err));
    TRI_TRY(tri_view_compile(layout, (int)rank, &session, err));
    if (session->programs[TRI_PROGRAM_TRAIN].num_instrs > TRI_VIEW_INSTRUCTIONS)
        return tri_fail(err, TR_ERROR_INPUT,
                        "the program has %zu instructions, more than the %d that a page shows",
                        session->programs[TRI_PROGRAM_TRAIN].num_instrs, TRI_VIEW_INSTRUCTIONS);
    tri_doc_program(doc, session, TRI_PROGRAM_TRAIN, false);
    return TR_OK;
}
