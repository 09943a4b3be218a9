#include "cli/page/report_page.h"

#include <string.h>

#include "cli/page/page_assets.h"

/* The browser is told to fetch nothing and to send nothing, whatever is in the documents. */
#define POLICY                                                                                     \
    "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "                  \
    "style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:; base-uri 'none'; "      \
    "form-action 'none'\">\n<meta name=\"referrer\" content=\"no-referrer\">\n"

/* What HTML or JavaScript might take for something else is only ever inside texts of JSON, where
 * any character may be spelt out. */
static void add_json(tri_text *text, const char *json, size_t num_bytes)
{
    size_t begin = 0;
    for (size_t i = 0; i < num_bytes; i++) {
        unsigned char c = (unsigned char)json[i];
        bool line = c == 0xe2 && i + 2 < num_bytes && (unsigned char)json[i + 1] == 0x80 &&
                    ((unsigned char)json[i + 2] & 0xfe) == 0xa8; /* U+2028, U+2029 */
        if (c != '<' && c != '>' && c != '&' && !line)
            continue;
        tri_text_add_bytes(text, json + begin, i - begin);
        tri_text_add(text, "\\u%04x", line ? 0x2000u + ((unsigned char)json[i + 2] & 0x3f) : c);
        i += line ? 2 : 0;
        begin = i + 1;
    }
    tri_text_add_bytes(text, json + begin, num_bytes - begin);
}

void tri_report_begin(tri_text *documents)
{
    tri_text_add(documents, "{");
}

void tri_report_add(tri_text *documents, const char *url, const char *json, size_t num_bytes)
{
    tri_text_add(documents, "%s\n\"", documents->length > 1 ? "," : "");
    add_json(documents, url, strlen(url)); /* it has neither quotes nor backslashes */
    tri_text_add(documents, "\":");
    add_json(documents, json, num_bytes);
}

void tri_report_end(tri_text *documents)
{
    tri_text_add(documents, "}");
}

/* ---- the page ---- */

typedef struct page_reader {
    const char *at, *end;
} page_reader;

/* Whether the text goes on with these words, which are then passed over. */
static bool takes(page_reader *r, const char *words)
{
    size_t length = strlen(words);
    if ((size_t)(r->end - r->at) < length || memcmp(r->at, words, length) != 0)
        return false;
    r->at += length;
    return true;
}

/* The name of a file up to a quote. */
static void take_name(page_reader *r, char name[64])
{
    size_t length = 0;
    while (r->at < r->end && *r->at != '"' && length < 63)
        name[length++] = *r->at++;
    name[length] = 0;
}

static void add_file(tri_text *page, const char *name)
{
    const void *bytes;
    size_t num_bytes;
    const char *type;
    if (tri_page_asset(name, &bytes, &num_bytes, &type))
        tri_text_add_bytes(page, bytes, num_bytes);
}

/* Links to files become the files. */
static bool put_file(page_reader *r, tri_text *page)
{
    char name[64];
    if (takes(r, "<link rel=\"stylesheet\" href=\"")) {
        take_name(r, name);
        tri_text_add(page, "<style>\n");
        add_file(page, name);
        tri_text_add(page, "</style>");
        return takes(r, "\">");
    }
    if (takes(r, "<script src=\"")) {
        take_name(r, name);
        tri_text_add(page, "<script>\n");
        add_file(page, name);
        tri_text_add(page, "</script>");
        return takes(r, "\"></script>");
    }
    if (takes(r, "<link rel=\"icon\" href=\"icon.svg\">")) {
        tri_text_add(page, "<link rel=\"icon\" href=\"data:,\">\n" POLICY);
        return true;
    }
    return false;
}

/* The documents stand before the first script that reads them. */
void tri_report_page(const tri_text *documents, tri_text *page)
{
    const void *bytes;
    size_t num_bytes;
    const char *type;
    tri_text_add(page, TRI_REPORT_MARK);
    if (!tri_page_asset("index.html", &bytes, &num_bytes, &type))
        return;
    page_reader r = {.at = bytes, .end = (const char *)bytes + num_bytes};
    takes(&r, "<!doctype html>\n");
    while (r.at < r.end) {
        if (takes(&r, "<body>")) {
            tri_text_add(page, "<body>\n<script type=\"application/json\" id=\"report\">");
            tri_text_add_bytes(page, documents->chars, documents->length);
            tri_text_add(page, "</script>");
        } else if (!put_file(&r, page))
            tri_text_add_bytes(page, r.at++, 1);
    }
}
