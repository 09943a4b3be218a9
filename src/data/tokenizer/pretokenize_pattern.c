/* Patterns: literals by search, regular expressions by Oniguruma, which is what Hugging Face
 * tokenizers runs them in, and whose data it uses: this file is compiled with -fPIC. */
#include "data/tokenizer/pretokenize.h"

#include <oniguruma.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct tri_pattern {
    char *text;
    size_t num_bytes;
    regex_t *regex; /* NULL for a literal */
};

enum {
    ATTEMPTS_BETWEEN_LOOKS = 64, /* at the clock */
    MOST_RETRIES = 10000000,     /* of one match: Oniguruma's own, and so Hugging Face's */
    MOST_STACK = 1 << 24
};

/* Processor time for the patterns of one text: far more than any sensible pattern takes. */
static const int64_t LEAST_NS = INT64_C(2000000000), NS_PER_BYTE = 4000;

static void initialize(void)
{
    OnigEncoding encoding = ONIG_ENCODING_UTF8;
    onig_initialize(&encoding, 1);
}

/* Before the pattern stands what calls us at each place where it is tried: so a search that would
 * take all day can be ended. What one try may take is limited by MOST_RETRIES and the text. */
static const char watched[] = "(?{w})(?:", watched_end[] = ")";

static tr_status compile_regex(tri_pattern *pattern, tr_error *err)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    tri_bytes translated = {0};
    OnigErrorInfo info = {0};
    pthread_once(&once, initialize);
    tri_bytes_add(&translated, watched, strlen(watched));
    tr_status status = tri_pattern_translate(pattern->text, pattern->num_bytes, &translated, err);
    tri_bytes_add(&translated, watched_end, strlen(watched_end));
    if (status == TR_OK && translated.failed)
        status = tri_fail(err, TR_ERROR_RUNTIME, "out of memory");
    if (status == TR_OK) {
        const UChar *begin = (const UChar *)translated.data;
        int code = onig_new(&pattern->regex, begin, begin + translated.num, ONIG_OPTION_NONE,
                            ONIG_ENCODING_UTF8, ONIG_SYNTAX_ONIGURUMA, &info);
        if (code != ONIG_NORMAL) {
            UChar why[ONIG_MAX_ERROR_MESSAGE_LEN] = "";
            onig_error_code_to_str(why, code, &info);
            pattern->regex = NULL;
            status = tri_fail(err, code == ONIGERR_MEMORY ? TR_ERROR_RUNTIME : TR_ERROR_INPUT,
                              "the pattern \"%.200s\" is wrong: %s", pattern->text, (char *)why);
        }
    }
    tri_bytes_fini(&translated);
    return status;
}

tr_status tri_pattern_create(const char *text, size_t num_bytes, bool is_regex,
                             tri_pattern **pattern, tr_error *err)
{
    tri_pattern *p = *pattern = calloc(1, sizeof *p);
    if (p)
        p->text = malloc(num_bytes + 1);
    if (!p || !p->text) {
        free(p);
        *pattern = NULL;
        return tri_fail(err, TR_ERROR_RUNTIME, "out of memory");
    }
    memcpy(p->text, text, num_bytes);
    p->text[num_bytes] = 0;
    p->num_bytes = num_bytes;
    tr_status status = TR_OK;
    if (num_bytes == 0)
        status = tri_fail(err, TR_ERROR_INPUT, "a pattern is empty");
    else if (is_regex)
        status = compile_regex(p, err);
    if (status != TR_OK) {
        tri_pattern_destroy(p);
        *pattern = NULL;
    }
    return status;
}

void tri_pattern_destroy(tri_pattern *pattern)
{
    if (!pattern)
        return;
    onig_free(pattern->regex);
    free(pattern->text);
    free(pattern);
}

const char *tri_pattern_literal(const tri_pattern *pattern, size_t *num_bytes)
{
    *num_bytes = pattern->num_bytes;
    return pattern->regex ? NULL : pattern->text;
}

const char *tri_pattern_text(const tri_pattern *pattern)
{
    return pattern->text;
}

/* ---- limits ---- */

static int64_t processor_ns(void)
{
    struct timespec now = {0};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

void tri_matcher_allow(tri_matcher *matcher, int64_t ns)
{
    matcher->deadline_ns = processor_ns() + ns;
}

void tri_matcher_begin(tri_matcher *matcher, size_t num_bytes)
{
    matcher->gave_up = NULL;
    matcher->failed = false;
    tri_matcher_allow(matcher, LEAST_NS + NS_PER_BYTE * (int64_t)num_bytes);
}

void tri_matcher_fini(tri_matcher *matcher)
{
    if (matcher->region)
        onig_region_free(matcher->region, 1);
    if (matcher->param)
        onig_free_match_param(matcher->param);
    *matcher = (tri_matcher){0};
}

static int watch(OnigCalloutArgs *args, void *user_data)
{
    (void)args;
    tri_matcher *matcher = user_data;
    if (++matcher->attempts % ATTEMPTS_BETWEEN_LOOKS != 0 || processor_ns() <= matcher->deadline_ns)
        return ONIG_CALLOUT_SUCCESS;
    return ONIG_ABORT;
}

static bool prepare(tri_matcher *matcher)
{
    if (!matcher->region)
        matcher->region = onig_region_new();
    if (!matcher->param && (matcher->param = onig_new_match_param())) {
        onig_initialize_match_param(matcher->param);
        onig_set_retry_limit_in_match_of_match_param(matcher->param, MOST_RETRIES);
        onig_set_match_stack_limit_size_of_match_param(matcher->param, MOST_STACK);
        onig_set_progress_callout_of_match_param(matcher->param, watch);
    }
    if (matcher->param)
        onig_set_callout_user_data_of_match_param(matcher->param, matcher);
    matcher->failed = matcher->failed || !matcher->region || !matcher->param;
    return !matcher->failed && !matcher->gave_up;
}

/* ---- matches ---- */

static bool is_valid(const char *text, size_t num_bytes)
{
    const char *p = text, *end = text + num_bytes;
    if (tri_is_ascii(text, num_bytes))
        return true;
    while (p < end)
        if (tri_utf8_next(&p, end) >= TRI_BROKEN)
            return false;
    return true;
}

void tri_matches_begin(tri_matches *m, const tri_pattern *pattern, tri_matcher *matcher,
                       const char *text, size_t num_bytes)
{
    *m = (tri_matches){.pattern = pattern, .matcher = matcher, .text = text, .num = num_bytes};
    m->last_match = SIZE_MAX;
    if (num_bytes == 0)
        m->at = 1; /* nothing matches in nothing */
    if (!pattern->regex || is_valid(text, num_bytes))
        return;
    /* Oniguruma reads beyond the end of broken text. It gets one in which U+FFFD stands for each
     * byte that is no part of a character. */
    m->is_copy = true;
    for (const char *p = text, *end = text + num_bytes; p < end;) {
        const char *at = p;
        if (tri_utf8_next(&p, end) < TRI_BROKEN)
            tri_bytes_add(&m->copy, at, (size_t)(p - at));
        else
            tri_bytes_add(&m->copy, "\xEF\xBF\xBD", 3);
    }
    m->source = text;
    m->source_num = num_bytes;
    m->text = m->copy.data;
    m->num = m->copy.num;
    matcher->failed = matcher->failed || m->copy.failed;
}

void tri_matches_end(tri_matches *m)
{
    tri_bytes_fini(&m->copy);
}

/* From a place in the copy to the same place in the text; places only rise. */
static size_t to_source(tri_matches *m, size_t at)
{
    const char *end = m->source + m->source_num, *p = m->source + m->source_at;
    while (m->copy_at < at && p < end) {
        const char *before = p;
        m->copy_at += tri_utf8_next(&p, end) < TRI_BROKEN ? (size_t)(p - before) : 3;
    }
    m->source_at = (size_t)(p - m->source);
    return m->source_at;
}

/* The first match at or after `from`. */
static bool search(tri_matches *m, size_t from, size_t *begin, size_t *end)
{
    tri_matcher *matcher = m->matcher;
    const UChar *text = (const UChar *)m->text, *stop = text + m->num;
    if (!prepare(matcher))
        return false;
    int found = onig_search_with_param(m->pattern->regex, text, stop, text + from, stop,
                                       matcher->region, ONIG_OPTION_NONE, matcher->param);
    if (found == ONIGERR_MEMORY)
        matcher->failed = true;
    else if (found < 0 && found != ONIG_MISMATCH)
        matcher->gave_up = m->pattern;
    if (found < 0)
        return false;
    const OnigRegion *region = matcher->region;
    *begin = (size_t)region->beg[0];
    *end = (size_t)region->end[0];
    return true;
}

static bool find_literal(tri_matches *m, size_t *begin, size_t *end)
{
    const tri_pattern *p = m->pattern;
    if (m->at >= m->num)
        return false;
    const char *found = tri_find(m->text + m->at, m->num - m->at, p->text, p->num_bytes);
    if (!found)
        return false;
    *begin = (size_t)(found - m->text);
    *end = m->at = *begin + p->num_bytes;
    return true;
}

bool tri_matches_next(tri_matches *m, size_t *begin, size_t *end)
{
    if (!m->pattern->regex)
        return find_literal(m, begin, end);
    while (m->at <= m->num && search(m, m->at, begin, end)) {
        if (*begin == *end && *end == m->last_match) { /* nothing, where the last match ended */
            const char *p = m->text + m->at;
            if (m->at < m->num)
                tri_utf8_next(&p, m->text + m->num);
            m->at = m->at < m->num ? (size_t)(p - m->text) : m->num + 1;
            continue;
        }
        if (*begin < m->done) { /* a look-behind can move the beginning: nothing can be cut so */
            m->matcher->gave_up = m->pattern;
            return false;
        }
        m->at = m->last_match = m->done = *end;
        if (m->is_copy) {
            *begin = to_source(m, *begin);
            *end = to_source(m, *end);
        }
        return true;
    }
    return false;
}
