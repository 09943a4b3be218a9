#include "serve/stream.h"

#include <string.h>

/* Tokens before the new one that are decoded along with it: what a token means may depend on the
 * ones before it (a space that begins a text, words that are continued). */
enum { CONTEXT = 6 };

const char *tri_text_end_name(tri_text_end end)
{
    static const char *const names[] = {"length", "eos", "stop"};
    return names[end];
}

size_t tri_utf8_unfinished(const char *text, size_t num_bytes)
{
    for (size_t back = 1; back <= 3 && back <= num_bytes; back++) {
        unsigned char byte = (unsigned char)text[num_bytes - back];
        if (byte < 0x80)
            return 0;
        if (byte >= 0xC0) {
            size_t length = byte >= 0xF0 ? 4 : byte >= 0xE0 ? 3 : 2;
            return byte < 0xF8 && length > back ? back : 0;
        }
    }
    return 0;
}

void tri_text_stream_begin(tri_text_stream *stream, const int32_t *prompt, size_t num_prompt)
{
    size_t num = num_prompt < CONTEXT ? num_prompt : CONTEXT;
    if (num > 0) /* a prompt may be nothing at all */
        tri_ids_add(&stream->ids, prompt + (num_prompt - num), num);
    stream->num_prompt = stream->shown = num;
}

void tri_text_stream_fini(tri_text_stream *stream)
{
    tri_ids_fini(&stream->ids);
    tri_bytes_fini(&stream->text);
}

/* Where the first stop string begins that lies in the text from `from` on; or its end. */
static size_t find_stop(const tri_text_stream *stream, size_t from)
{
    size_t found = stream->text.num;
    for (size_t i = 0; i < stream->stops.num; i++) {
        const char *stop = stream->stops.string[i];
        const char *at =
            tri_find(stream->text.data + from, stream->text.num - from, stop, strlen(stop));
        if (at && (size_t)(at - stream->text.data) < found)
            found = (size_t)(at - stream->text.data);
    }
    return found;
}

/* Bytes at the end of the text that may be the beginning of a stop string. */
static size_t held_for_stops(const tri_text_stream *stream)
{
    size_t most = 0;
    for (size_t i = 0; i < stream->stops.num; i++) {
        const char *stop = stream->stops.string[i];
        size_t num = strlen(stop) - 1;
        if (num > stream->text.num - stream->given)
            num = stream->text.num - stream->given;
        while (num > most && memcmp(stream->text.data + stream->text.num - num, stop, num) != 0)
            num--;
        most = num > most ? num : most;
    }
    return most;
}

static void give(tri_text_stream *stream, size_t end)
{
    if (end > stream->given && stream->piece)
        stream->piece(stream->context, stream->text.data + stream->given, end - stream->given);
    if (end > stream->given)
        stream->given = end;
}

/* Appends the text of the tokens that have not been shown: what decoding them with some context
 * gives beyond the context alone. */
static tr_status show(tri_text_stream *stream, tr_error *err)
{
    tri_bytes before = {0}, all = {0};
    size_t from = stream->shown > CONTEXT ? stream->shown - CONTEXT : 0;
    const int32_t *ids = stream->ids.id + from;
    tr_status status =
        tri_vocabulary_text(stream->vocabulary, ids, stream->shown - from, &before, err);
    if (status == TR_OK)
        status = tri_vocabulary_text(stream->vocabulary, ids, stream->ids.num - from, &all, err);
    if (status == TR_OK && all.num > before.num)
        tri_bytes_add(&stream->text, all.data + before.num, all.num - before.num);
    stream->shown = stream->ids.num;
    tri_bytes_fini(&before);
    tri_bytes_fini(&all);
    if (status == TR_OK && stream->text.failed)
        status = tri_fail(err, TR_ERROR_RUNTIME, "no memory for the text");
    return status;
}

tr_status tri_text_stream_add(tri_text_stream *stream, int32_t token, bool *more, tr_error *err)
{
    *more = false;
    if (!stream->past_eos && tri_vocabulary_ends(stream->vocabulary, token)) {
        stream->end = TRI_END_EOS;
        stream->ended = true;
        return TR_OK;
    }
    tri_ids_add(&stream->ids, &token, 1);
    if (stream->ids.failed)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for the tokens of a text");
    *more = true;
    if (!stream->vocabulary->tokenizer)
        return TR_OK;
    TRI_TRY(show(stream, err));
    if (!stream->text.data)
        return TR_OK;
    size_t stop = find_stop(stream, stream->given);
    if (stop < stream->text.num) {
        stream->text.num = stop;
        stream->end = TRI_END_STOP;
        stream->ended = true;
        *more = false;
        return TR_OK;
    }
    size_t end = stream->text.num - held_for_stops(stream);
    give(stream, end - tri_utf8_unfinished(stream->text.data, end));
    return TR_OK;
}

void tri_text_stream_finish(tri_text_stream *stream)
{
    stream->ended = true;
    give(stream, stream->text.num);
}
