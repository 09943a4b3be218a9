/* What a shell may complete a command to. */
#ifndef TRI_CLI_WORDS_COMPLETION_H
#define TRI_CLI_WORDS_COMPLETION_H

/* The first word of a command by which the scripts of `trireme completion` ask. */
#define TRI_COMPLETE_WORD "--complete"

/* words are those behind the program's name, the last one the one to complete, "" where none is
 * begun. Prints a line for each that it may become: the word, a tab, and what it means; one that
 * ends in '=' wants more behind it. A line ":files BEFORE" or ":dirs BEFORE" says that the name of
 * a file or a directory may stand there, behind BEFORE, which is part of the word. */
int tri_complete(int num_words, char **words);

#endif
