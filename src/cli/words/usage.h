/* What may stand on a command line, as the usage line of a verb says it: alternatives with " | "
 * between, words in lower case as they stand ("diff"), kinds of words in capitals ("RUN"). */
#ifndef TRI_CLI_WORDS_USAGE_H
#define TRI_CLI_WORDS_USAGE_H

/* One word or kind that may come next, not ended by a 0. */
typedef void (*tri_usage_take_fn)(void *context, const char *word, int length);

/* Calls take for everything that may follow these operands. Words count before kinds: behind
 * "diff", what follows diff, and not what follows any DIR. */
void tri_usage_next(const char *usage, const char *const *operands, int num_operands,
                    tri_usage_take_fn take, void *context);

#endif
