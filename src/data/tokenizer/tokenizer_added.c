/* Tokens that are found in the text itself before anything else happens to it: special ones such
 * as <|endoftext|>, and words that a user added. Of those that begin at the same place the longest
 * wins; of overlapping ones, the leftmost. */
#include "data/tokenizer/tokenizer_parts.h"

#include "base/arena.h"

#include <stdlib.h>
#include <string.h>

static int32_t new_node(tri_trie *trie, unsigned char byte)
{
    tri_trie_node *grown =
        tri_array_grow(trie->node, trie->num, &trie->capacity, sizeof *trie->node);
    if (grown)
        trie->node = grown;
    if (!grown || trie->num >= INT32_MAX) {
        trie->failed = true;
        return -1;
    }
    trie->node[trie->num] = (tri_trie_node){0, 0, -1, byte};
    return (int32_t)trie->num++;
}

static int32_t child_of(const tri_trie *trie, int32_t node, unsigned char byte)
{
    for (int32_t at = trie->node[node].child; at > 0; at = trie->node[at].sibling)
        if (trie->node[at].byte == byte)
            return at;
    return 0;
}

void tri_trie_add(tri_trie *trie, const char *text, size_t num_bytes, int32_t token)
{
    if (num_bytes == 0 || (trie->num == 0 && new_node(trie, 0) < 0))
        return;
    trie->begins[(unsigned char)text[0]] = true;
    int32_t node = 0;
    for (size_t i = 0; i < num_bytes; i++) {
        int32_t child = child_of(trie, node, (unsigned char)text[i]);
        if (child == 0) {
            child = new_node(trie, (unsigned char)text[i]);
            if (child < 0)
                return;
            trie->node[child].sibling = trie->node[node].child;
            trie->node[node].child = child;
        }
        node = child;
    }
    if (trie->node[node].token < 0)
        trie->node[node].token = token;
}

/* The longest token at p, or -1. */
static int32_t longest_at(const tri_trie *trie, const char *p, const char *end, const char **stop)
{
    int32_t best = -1, node = 0;
    for (const char *at = p; at < end; at++) {
        node = child_of(trie, node, (unsigned char)*at);
        if (node == 0)
            break;
        if (trie->node[node].token >= 0) {
            best = trie->node[node].token;
            *stop = at + 1;
        }
    }
    return best;
}

static void add_segment(tri_text_segments *list, tri_text_segment segment)
{
    tri_text_segment *grown = tri_array_grow(list->item, list->num, &list->capacity, sizeof *grown);
    if (!grown) {
        list->failed = true;
        return;
    }
    list->item = grown;
    list->item[list->num++] = segment;
}

static bool in_class(const tri_unicode *unicode, uint32_t c, unsigned class)
{
    return c < TRI_BROKEN && (tri_unicode_class(unicode, c) & class);
}

static bool stands_alone(const tri_unicode *unicode, const char *text, const char *begin,
                         const char *stop, const char *end)
{
    const char *before = begin, *after = stop;
    if (begin > text && in_class(unicode, tri_utf8_previous(text, &before), TRI_CLASS_WORD))
        return false;
    return stop == end || !in_class(unicode, tri_utf8_next(&after, end), TRI_CLASS_WORD);
}

static const char *spaces_before(const tri_unicode *unicode, const char *from, const char *p)
{
    while (p > from) {
        const char *before = p;
        if (!in_class(unicode, tri_utf8_previous(from, &before), TRI_CLASS_SPACE))
            break;
        p = before;
    }
    return p;
}

static const char *spaces_after(const tri_unicode *unicode, const char *p, const char *end)
{
    while (p < end) {
        const char *after = p;
        if (!in_class(unicode, tri_utf8_next(&after, end), TRI_CLASS_SPACE))
            break;
        p = after;
    }
    return p;
}

static void add_text(tri_text_segments *out, const char *text, const char *begin, const char *end,
                     size_t first)
{
    size_t skipped = (size_t)(begin - text);
    add_segment(out, (tri_text_segment){begin, (size_t)(end - begin), -1,
                                        first > skipped ? first - skipped : 0});
}

void tri_added_split(const tri_added_list *list, const tri_trie *trie, const tri_unicode *unicode,
                     const char *text, size_t num_bytes, bool skip_special, size_t first,
                     tri_text_segments *out)
{
    const char *end = text + num_bytes, *done = text, *p = text;
    while (trie->num > 0 && p < end) {
        const char *stop = p;
        if (!trie->begins[(unsigned char)*p]) {
            p++;
            continue;
        }
        int32_t found = longest_at(trie, p, end, &stop);
        if (found < 0) {
            p++;
            continue;
        }
        const tri_added *token = &list->item[found];
        const char *begin = p;
        p = stop;
        if ((skip_special && token->special) ||
            (token->single_word && !stands_alone(unicode, text, begin, stop, end)))
            continue;
        if (token->lstrip)
            begin = spaces_before(unicode, done, begin);
        if (token->rstrip) /* a token that begins with the same spaces is still found */
            stop = spaces_after(unicode, stop, end);
        if (begin > done)
            add_text(out, text, done, begin, first);
        add_segment(out, (tri_text_segment){begin, (size_t)(stop - begin), token->id, 0});
        done = stop;
    }
    if (end > done)
        add_text(out, text, done, end, first);
}

static void trie_fini(tri_trie *trie)
{
    free(trie->node);
    *trie = (tri_trie){0};
}

void tri_added_fini(tri_added_list *list)
{
    for (size_t i = 0; i < list->num; i++)
        free(list->item[i].content), free(list->item[i].shown);
    free(list->item);
    trie_fini(&list->raw);
    trie_fini(&list->normalized);
    *list = (tri_added_list){0};
}
