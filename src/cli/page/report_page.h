/* The page with its styles, its scripts and its documents in one file, which asks for nothing. */
#ifndef TRI_CLI_PAGE_REPORT_PAGE_H
#define TRI_CLI_PAGE_REPORT_PAGE_H

#include "base/text.h"

/* The first bytes of a report, by which it is known as one of ours. */
#define TRI_REPORT_MARK "<!doctype html>\n<!-- made by trireme report -->\n"

/* {"URL": document, ...}, member by member. A document is JSON as a server would send it; here it
 * is written so that it cannot end the element that it is in. */
void tri_report_begin(tri_text *documents);
void tri_report_add(tri_text *documents, const char *url, const char *json, size_t num_bytes);
void tri_report_end(tri_text *documents);

/* The whole file. */
void tri_report_page(const tri_text *documents, tri_text *page);

#endif
