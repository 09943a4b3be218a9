/* A column for each way to deal: the row as a bar in the colours of the ranks, and below it the
 * mask. A query is a line of the mask from top to bottom, and has the colour of its rank from the
 * first to the last key that it sees. Plain SVG without scripts or fonts of its own. */
#include <math.h>

#include "cli/deal/deal_view.h"

enum {
    LEFT = 44,
    TOP = 66,
    BAR = 16,
    SIDE = 300, /* of the mask, and the length of the bar */
    GAP = 36,
    LINE = 18, /* of the legend */
    MASK = TOP + 38 + BAR + 12,
    MOST_RANKS = 16,
    MOST_PIECES = 20000
};

/* Ranks 0 to 7, then the same hues lighter. */
static const char *const colours[MOST_RANKS] = {
    "#2f6fc0", "#e08a1e", "#2f8f57", "#8a4fb0", "#c63d3d", "#1f9aa8", "#8a6038", "#5d6673",
    "#9ec5f4", "#f8d38d", "#a9dfb8", "#d9b8e8", "#f2aaaa", "#a5dfe6", "#d8c0a8", "#a9b1bc"};

typedef struct deal_picture {
    const tri_deal_view *view;
    tri_text *text;
    double scale; /* pixels of a token */
    size_t pieces;
} deal_picture;

/* Where the mask begins and ends for the queries around a place: the keys of its document. */
typedef struct keys_seen {
    int64_t first, end;
} keys_seen;

static keys_seen seen_at(const tri_context *context, int64_t place)
{
    return context->span ? (keys_seen){context->span[place][0], context->span[place][1]}
                         : (keys_seen){0, context->deal.length};
}

/* The queries [begin, end) of one document as a polygon: up to the diagonal where they see nothing
 * later, from the diagonal a window away. */
static void add_queries(deal_picture *p, const tri_deal *deal, double x, keys_seen seen,
                        int64_t begin, int64_t end)
{
    double s = p->scale, first = (double)seen.first, b = (double)begin, e = (double)end;
    double window = deal->window > 0 ? deal->window : (double)deal->length;
    double right_b = deal->causal ? b : (double)seen.end, left_b = fmax(first, b - window);
    double right_e = deal->causal ? e : (double)seen.end, left_e = fmax(first, e - window);
    tri_text_add(p->text, "M%.2f %.2fL%.2f %.2fL%.2f %.2fL%.2f %.2f", x + s * left_b, MASK + s * b,
                 x + s * right_b, MASK + s * b, x + s * right_e, MASK + s * e, x + s * left_e,
                 MASK + s * e);
    if (first + window > b && first + window < e)
        tri_text_add(p->text, "L%.2f %.2f", x + s * first, MASK + s * (first + window));
    tri_text_add(p->text, "Z");
    p->pieces++;
}

/* The tokens of a rank, which lie at [from, to) in dealt order: in the bar, and in the mask. */
static void draw_rank(deal_picture *p, const tri_context *context, double x, int32_t rank,
                      int64_t from, int64_t to)
{
    const int32_t *places = context->places;
    tri_text_add(p->text, "<path fill=\"%s\" d=\"", colours[rank]);
    for (int64_t i = from, next; i < to; i = next) {
        next = tri_deal_run_end(places, i, to);
        tri_text_add(p->text, "M%.2f %dv%dh%.2fv-%dZ", x + p->scale * places[i], MASK - 12 - BAR,
                     BAR, p->scale * (double)(next - i), BAR);
        int64_t end = places[i] + next - i;
        for (int64_t t = places[i], stop; t < end && p->pieces <= MOST_PIECES; t = stop) {
            keys_seen seen = seen_at(context, t);
            stop = seen.end > t ? seen.end : t + 1; /* padding sees nothing */
            stop = stop < end ? stop : end;
            if (seen.end > seen.first)
                add_queries(p, &context->deal, x, seen, t, stop);
        }
    }
    tri_text_add(p->text, "\"/>\n");
}

/* Ticks between documents. */
static void draw_borders(const deal_picture *p, const tri_context *context, double x)
{
    for (int64_t t = 1; context->span && t < context->deal.length; t++)
        if (context->span[t][0] == t && context->span[t][1] > t)
            tri_text_add(p->text,
                         "<line x1=\"%.2f\" y1=\"%d\" x2=\"%.2f\" y2=\"%d\" stroke=\"#1c2128\" "
                         "stroke-width=\"0.8\"/>\n",
                         x + p->scale * (double)t, MASK - 16 - BAR, x + p->scale * (double)t,
                         MASK - 8);
}

static void draw_legend(const deal_picture *p, const tri_deal_facts *f, double x)
{
    int64_t sum = 0;
    char grouped[32];
    for (int32_t r = 0; r < p->view->num_ranks; r++)
        sum += f->first[r].area;
    for (int32_t r = 0; r < p->view->num_ranks; r++) {
        double y = MASK + SIDE + 34 + LINE * (double)r;
        double share = sum > 0 ? (double)f->first[r].area / (double)sum : 0;
        tri_text_add(p->text,
                     "<rect x=\"%.1f\" y=\"%.1f\" width=\"13\" height=\"13\" fill=\"%s\"/>"
                     "<text x=\"%.1f\" y=\"%.1f\" class=\"k\">rank %d: %.1f %% of the area, %s "
                     "remote keys</text>\n",
                     x, y - 11, colours[r], x + 20, y, r, 100 * share,
                     tri_text_grouped(f->first[r].remote, grouped));
    }
}

static void draw_deal(deal_picture *p, int kind)
{
    const tri_deal_facts *f = &p->view->kind[kind];
    const tri_context *context = f->context;
    double x = LEFT + kind * (double)(SIDE + GAP), largest = 0, sum = 0;
    int64_t i = 0;
    for (int32_t r = 0; r < p->view->num_ranks; r++) {
        largest = fmax(largest, (double)f->first[r].area);
        sum += (double)f->first[r].area;
    }
    tri_text_add(p->text,
                 "<text x=\"%.1f\" y=\"%d\" class=\"h\">%s</text>"
                 "<text x=\"%.1f\" y=\"%d\" class=\"r\">largest / mean area %.3f</text>\n"
                 "<rect x=\"%.1f\" y=\"%d\" width=\"%d\" height=\"%d\" fill=\"#f3f4f6\" "
                 "stroke=\"#d5d8de\"/>\n",
                 x, TOP + 16, tri_deal_names[kind], x + SIDE, TOP + 16,
                 sum > 0 ? largest * p->view->num_ranks / sum : 1, x, MASK, SIDE, SIDE);
    for (int32_t r = 0; r < p->view->num_ranks; r++) {
        draw_rank(p, context, x, r, i, i + context->deal.sizes[r]);
        i += context->deal.sizes[r];
    }
    draw_borders(p, context, x);
    draw_legend(p, f, x);
}

static void draw_frame(const deal_picture *p, const char *title, double width, double height)
{
    tri_text_add(p->text,
                 "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" "
                 "viewBox=\"0 0 %.0f %.0f\" font-family=\"Helvetica, Arial, sans-serif\">\n"
                 "<style>.h{font-size:14px;font-weight:bold;fill:#1c2128}"
                 ".r{font-size:12px;text-anchor:end;fill:#2b313b}"
                 ".t{font-size:11px;text-anchor:middle;fill:#4a5361}"
                 ".k{font-size:12px;fill:#2b313b}</style>\n"
                 "<rect width=\"100%%\" height=\"100%%\" fill=\"#ffffff\"/>\n"
                 "<text x=\"%d\" y=\"24\" font-size=\"16\" font-weight=\"bold\" fill=\"#1c2128\">",
                 width, height, width, height, LEFT);
    tri_text_add_svg(p->text, title);
    tri_text_add(p->text,
                 "</text>\n<text x=\"%d\" y=\"44\" class=\"k\">the bar: which rank has each token; "
                 "the square: the keys that each query sees, in the colour of the query's "
                 "rank</text>\n"
                 "<text class=\"t\" transform=\"translate(%d %d) rotate(-90)\">queries, from "
                 "first to last</text>\n",
                 LEFT, LEFT - 12, MASK + SIDE / 2);
    for (int k = 0; k < TRI_NUM_DEALS; k++)
        tri_text_add(p->text, "<text x=\"%d\" y=\"%d\" class=\"t\">keys</text>\n",
                     LEFT + k * (SIDE + GAP) + SIDE / 2, MASK + SIDE + 14);
}

tr_status tri_deal_view_draw(const tri_deal_view *view, const char *title, tri_text *text,
                             tr_error *err)
{
    if (view->num_ranks > MOST_RANKS)
        return tri_fail(err, TR_ERROR_INPUT,
                        "the colours of %d ranks could not be told apart; --draw takes up to %d: "
                        "add --set layout.cp=%d",
                        view->num_ranks, MOST_RANKS, MOST_RANKS);
    deal_picture p = {
        .view = view, .text = text, .scale = SIDE / (double)view->kind[0].context->deal.length};
    double width = LEFT + TRI_NUM_DEALS * (double)(SIDE + GAP);
    draw_frame(&p, title, width, MASK + SIDE + 42 + LINE * (double)view->num_ranks);
    for (int k = 0; k < TRI_NUM_DEALS; k++)
        draw_deal(&p, k);
    tri_text_add(text, "</svg>\n");
    if (p.pieces > MOST_PIECES)
        return tri_fail(err, TR_ERROR_INPUT,
                        "the first row falls into more than %d pieces, and a picture of them could "
                        "not be read; draw a shorter one (data.seq_len)",
                        MOST_PIECES);
    if (text->failed)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for the picture");
    return TR_OK;
}
