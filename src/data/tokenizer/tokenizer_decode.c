/* Ids to bytes: the texts of the tokens as a list that each step of the decoder changes. */
#include "data/tokenizer/tokenizer_parts.h"

#include <stdlib.h>
#include <string.h>

/* Texts one after the other: text i is data[start[i] .. start[i + 1]). */
typedef struct list {
    tri_bytes bytes;
    size_t *start;
    size_t num, capacity;
    bool failed;
} list;

static void list_clear(list *l)
{
    l->bytes.num = 0;
    l->num = 0;
}

/* Everything appended to bytes since the last call is one text. */
static void list_end(list *l)
{
    if (l->num + 1 >= l->capacity) {
        size_t capacity = 2 * l->capacity + 64;
        size_t *grown = realloc(l->start, capacity * sizeof *grown);
        if (!grown) {
            l->failed = true;
            return;
        }
        l->start = grown;
        l->capacity = capacity;
    }
    if (l->num == 0)
        l->start[0] = 0;
    l->start[++l->num] = l->bytes.num;
}

static void list_fini(list *l)
{
    tri_bytes_fini(&l->bytes);
    free(l->start);
}

static int hex(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                  : -1;
}

/* "<0x41>" is a byte. */
static int fallback_byte(const char *text, size_t num)
{
    if (num != 6 || memcmp(text, "<0x", 3) != 0 || text[5] != '>')
        return -1;
    int high = hex(text[3]), low = hex(text[4]);
    return high < 0 || low < 0 ? -1 : high * 16 + low;
}

static void replace_all(const char *from, const char *to, tri_bytes *text, tri_bytes *spare)
{
    size_t num_from = strlen(from), done = 0;
    spare->num = 0;
    while (done < text->num) {
        const char *found = tri_find(text->data + done, text->num - done, from, num_from);
        size_t until = found ? (size_t)(found - text->data) : text->num;
        tri_bytes_add(spare, text->data + done, until - done);
        if (found)
            tri_bytes_add(spare, to, strlen(to));
        done = until + (found ? num_from : 0);
    }
    tri_bytes swap = *text;
    *text = *spare;
    *spare = swap;
}

/* What English looks like once its pieces have a space before them. */
static void clean_up(tri_bytes *text, tri_bytes *spare)
{
    static const char *const pair[][2] = {
        {" .", "."},   {" ?", "?"},     {" !", "!"},     {" ,", ","},
        {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},   {" do not", " don't"},
        {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"},
    };
    for (size_t i = 0; i < sizeof pair / sizeof *pair; i++)
        replace_all(pair[i][0], pair[i][1], text, spare);
}

static void wordpiece(const tri_text_step *step, size_t i, const char *text, size_t num, list *out)
{
    tri_bytes word = {0}, spare = {0};
    if (i > 0 && num >= step->text_bytes && memcmp(text, step->text, step->text_bytes) == 0) {
        tri_bytes_add(&word, text + step->text_bytes, num - step->text_bytes);
    } else {
        if (i > 0)
            tri_bytes_add(&word, " ", 1);
        tri_bytes_add(&word, text, num);
    }
    if (step->number)
        clean_up(&word, &spare);
    tri_bytes_add(&out->bytes, word.data, word.num);
    out->failed = out->failed || word.failed || spare.failed;
    tri_bytes_fini(&word);
    tri_bytes_fini(&spare);
}

static void metaspace(const tri_text_step *step, size_t i, const char *text, size_t num, list *out)
{
    size_t done = 0;
    while (done < num) {
        const char *found = tri_find(text + done, num - done, step->text, step->text_bytes);
        size_t until = found ? (size_t)(found - text) : num;
        tri_bytes_add(&out->bytes, text + done, until - done);
        if (found && !(i == 0 && step->number))
            tri_bytes_add(&out->bytes, " ", 1);
        done = until + (found ? step->text_bytes : 0);
    }
}

static void strip_token(const tri_text_step *step, const char *text, size_t num, list *out)
{
    size_t length = step->text_bytes;
    for (int k = 0; k < step->number && num >= length; k++) {
        if (memcmp(text, step->text, length) != 0)
            break;
        text += length;
        num -= length;
    }
    for (int k = 0; k < step->more && num >= length; k++) {
        if (memcmp(text + num - length, step->text, length) != 0)
            break;
        num -= length;
    }
    tri_bytes_add(&out->bytes, text, num);
}

static void decode_token(const tri_text_step *step, tri_matcher *matcher, size_t i,
                         const char *text, size_t num, list *out)
{
    size_t done = 0, begin, end, before = out->bytes.num;
    tri_matches matches;
    int byte;
    char one;
    switch (step->kind) {
    case TRI_STEP_REPLACE:
        tri_matches_begin(&matches, step->pattern, matcher, text, num);
        while (tri_matches_next(&matches, &begin, &end)) {
            tri_bytes_add(&out->bytes, text + done, begin - done);
            tri_bytes_add(&out->bytes, step->text, step->text_bytes);
            done = end;
        }
        tri_matches_end(&matches);
        tri_bytes_add(&out->bytes, text + done, num - done);
        break;
    case TRI_STEP_BYTE_FALLBACK:
        byte = fallback_byte(text, num);
        one = (char)byte;
        tri_bytes_add(&out->bytes, byte >= 0 ? &one : text, byte >= 0 ? 1 : num);
        break;
    case TRI_STEP_STRIP_TOKEN:
        strip_token(step, text, num, out);
        break;
    case TRI_STEP_WORDPIECE:
        wordpiece(step, i, text, num, out);
        break;
    case TRI_STEP_METASPACE:
        metaspace(step, i, text, num, out);
        break;
    case TRI_STEP_BYTE_LEVEL:
        if (!tri_spelling_to_bytes(text, num, &out->bytes)) {
            out->bytes.num = before;
            tri_bytes_add(&out->bytes, text, num);
        }
        break;
    default:
        tri_bytes_add(&out->bytes, text, num);
        break;
    }
}

static void decode_step(const tri_text_step *step, tri_matcher *matcher, const list *in, list *out)
{
    bool fuse = step->kind == TRI_STEP_FUSE || step->kind == TRI_STEP_BYTE_LEVEL;
    list_clear(out);
    for (size_t i = 0; i < in->num; i++) {
        const char *text = in->bytes.data ? in->bytes.data + in->start[i] : "";
        decode_token(step, matcher, i, text, in->start[i + 1] - in->start[i], out);
        if (!fuse)
            list_end(out);
    }
    if (fuse)
        list_end(out);
}

static tr_status outside(const tri_tokenizer *t, int32_t id, tr_error *err)
{
    return tri_fail(err, TR_ERROR_INPUT, "%s: has no token %d; its tokens are 0 to %d", t->name, id,
                    t->spelling.num - 1);
}

tr_status tri_tokenizer_decode(const tri_tokenizer *t, const int32_t *ids, size_t num_ids,
                               unsigned flags, tri_bytes *bytes, tr_error *err)
{
    list a = {0}, b = {0}, *in = &a, *out = &b;
    /* Of a byte-level tokenizer the bytes of each token are known: that is its decoder's first step
     * done, and mostly all there is to do. */
    bool join = t->decoder.num == 0,
         bytes_known = t->byte_level && !join && t->decoder.step[0].kind == TRI_STEP_BYTE_LEVEL,
         simple = bytes_known && t->decoder.num == 1;
    for (size_t i = 0; i < num_ids; i++) {
        size_t num;
        const char *text = bytes_known ? tri_tokenizer_token(t, ids[i], &num)
                                       : tri_tokenizer_spelling(t, ids[i], &num);
        if (tri_vocab_is_hole(&t->spelling, ids[i]))
            continue;
        if (!text) {
            list_fini(&a);
            return outside(t, ids[i], err);
        }
        if ((flags & TRI_DECODE_SKIP_SPECIAL) && t->is_special[ids[i]])
            continue;
        for (size_t k = 0; t->added.any_shown && k < t->added.num; k++)
            if (t->added.item[k].id == ids[i] && t->added.item[k].shown) {
                text = t->added.item[k].shown;
                num = t->added.item[k].shown_bytes;
            }
        if (join && in->num > 0)
            tri_bytes_add(&in->bytes, " ", 1);
        tri_bytes_add(&in->bytes, text, num);
        if (!bytes_known)
            list_end(in);
    }
    if (bytes_known)
        list_end(in);
    tri_matcher matcher = {0};
    tri_matcher_begin(&matcher, in->bytes.num);
    for (int i = bytes_known ? 1 : 0; i < t->decoder.num && !simple; i++) {
        decode_step(&t->decoder.step[i], &matcher, in, out);
        list *swap = in;
        in = out;
        out = swap;
    }
    bool failed = a.failed || b.failed || a.bytes.failed || b.bytes.failed || matcher.failed;
    const tri_pattern *gave_up = matcher.gave_up;
    if (!failed && !gave_up)
        tri_bytes_add(bytes, in->bytes.data, in->bytes.num);
    failed = failed || bytes->failed;
    tri_matcher_fini(&matcher);
    list_fini(&a);
    list_fini(&b);
    if (gave_up)
        return tri_fail(err, TR_ERROR_INPUT,
                        "%s: the pattern \"%.200s\" of its decoder takes too long on this text and "
                        "was given up",
                        t->name, tri_pattern_text(gave_up));
    return failed ? tri_fail(err, TR_ERROR_RUNTIME, "%s: out of memory while decoding", t->name)
                  : TR_OK;
}
