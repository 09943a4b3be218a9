/* Encodes texts for tests/reference/compare_tokenizers.py.
 *
 *   encode_texts TOKENIZER < texts
 *
 * A text is a line with its number of bytes, and the bytes. For each come out a line of ids, and
 * what they decode to, in hexadecimal; or one line "! message". A tokenizer that cannot be opened
 * ends it with exit code 2 and the message on standard error. */
#include <stdio.h>
#include <stdlib.h>

#include "data/tokenizer/tokenizer.h"

static void answer(const tri_tokenizer *tokenizer, const char *text, size_t num_bytes)
{
    tri_ids ids = {0};
    tri_bytes back = {0};
    tr_error err = {0};
    tr_status status = tri_tokenizer_encode(tokenizer, NULL, text, num_bytes, 0, &ids, &err);
    if (status == TR_OK)
        status = tri_tokenizer_decode(tokenizer, ids.id, ids.num, 0, &back, &err);
    if (status != TR_OK) {
        printf("! %s\n", err.message);
    } else {
        for (size_t i = 0; i < ids.num; i++)
            printf("%s%d", i ? " " : "", ids.id[i]);
        printf("\n");
        for (size_t i = 0; i < back.num; i++)
            printf("%02x", (unsigned char)back.data[i]);
        printf("\n");
    }
    tri_ids_fini(&ids);
    tri_bytes_fini(&back);
}

int main(int argc, char **argv)
{
    tri_tokenizer *tokenizer;
    tr_error err = {0};
    size_t num_bytes;
    if (argc != 2 || tri_tokenizer_open(argv[1], &tokenizer, &err) != TR_OK) {
        fprintf(stderr, "%s\n", argc == 2 ? err.message : "encode_texts TOKENIZER < texts");
        return 2;
    }
    while (scanf("%zu", &num_bytes) == 1 && getchar() == '\n') {
        char *text = malloc(num_bytes + 1);
        if (!text || fread(text, 1, num_bytes, stdin) != num_bytes) {
            free(text);
            break;
        }
        answer(tokenizer, text, num_bytes);
        free(text);
    }
    tri_tokenizer_close(tokenizer);
    return 0;
}
