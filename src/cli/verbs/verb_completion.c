/* trireme completion: a script for a shell. It asks the program for every word, so that it has to
 * be neither made nor installed anew when verbs, flags or settings change. */
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/words/completion.h"

/* Bash divides words also at = and : (COMP_WORDBREAKS), and replaces only what stands behind the
 * last of them: words are put together again first, and the front of candidates is cut off. */
static const char bash[] =
    "# Completion of trireme for bash, printed by `trireme completion bash`.\n"
    "_trireme() {\n"
    "    local line=${COMP_LINE:0:COMP_POINT} words=() word rest i\n"
    "    for ((i = 0; i <= COMP_CWORD; i++)); do\n"
    "        rest=${line#\"${line%%[![:blank:]]*}\"}\n"
    "        word=${COMP_WORDS[i]}\n"
    "        ((i < COMP_CWORD)) || word=$rest\n"
    "        if ((i == 0)) || [[ $rest != \"$line\" ]]; then\n"
    "            words+=(\"\")\n"
    "        fi\n"
    "        line=${rest#\"$word\"}\n"
    "        words[-1]+=${word//[\\\\\\'\\\"]/}\n"
    "    done\n"
    "    word=${words[-1]}\n"
    "    local mark front='' answer files=()\n"
    "    for mark in = :; do\n"
    "        rest=${word%\"${word##*\"$mark\"}\"}\n"
    "        if [[ $COMP_WORDBREAKS == *\"$mark\"* ]] && ((${#rest} > ${#front})); then\n"
    "            front=$rest\n"
    "        fi\n"
    "    done\n"
    "    COMPREPLY=()\n"
    "    while IFS= read -r answer; do\n"
    "        case $answer in\n"
    "        ':files '*) rest=${answer#:files } mark=-f ;;\n"
    "        ':dirs '*) rest=${answer#:dirs } mark=-d ;;\n"
    "        *)\n"
    "            COMPREPLY+=(\"${answer%%$'\\t'*}\")\n"
    "            continue\n"
    "            ;;\n"
    "        esac\n"
    "        mapfile -t files < <(compgen \"$mark\" -P \"$rest\" -- \"${word#\"$rest\"}\")\n"
    "        for answer in \"${files[@]}\"; do\n"
    "            [[ \" ${COMPREPLY[*]} \" == *\" $answer \"* ]] || COMPREPLY+=(\"$answer\")\n"
    "        done\n"
    "        compopt -o filenames 2>/dev/null\n"
    "    done < <(\"${words[0]/#\\~/$HOME}\" " TRI_COMPLETE_WORD " \"${words[@]:1}\" 2>/dev/null)\n"
    "    if [[ ${#COMPREPLY[@]} -gt 0 && ${COMPREPLY[0]} == *= ]]; then\n"
    "        compopt -o nospace 2>/dev/null\n"
    "    fi\n"
    "    COMPREPLY=(\"${COMPREPLY[@]#\"$front\"}\")\n"
    "}\n"
    "complete -F _trireme trireme\n";

static const char zsh[] = "#compdef trireme\n"
                          "# Completion of trireme for zsh, printed by `trireme completion zsh`.\n"
                          "_trireme() {\n"
                          "    local line word kind='' front='' found=1\n"
                          "    local -a answers plain open\n"
                          "    answers=(\"${(@f)$(\"${words[1]/#\\~/$HOME}\" " TRI_COMPLETE_WORD
                          " \"${(@Q)words[2,CURRENT-1]}\" \"${(Q)PREFIX}\" 2>/dev/null)}\")\n"
                          "    for line in $answers; do\n"
                          "        case $line in\n"
                          "        ':files '*) kind=files front=${line#:files } ;;\n"
                          "        ':dirs '*) kind=dirs front=${line#:dirs } ;;\n"
                          "        *)\n"
                          "            word=${line%%$'\\t'*}\n"
                          "            if [[ $word == *= ]]; then\n"
                          "                open+=(\"${word//:/\\\\:}:${line#*$'\\t'}\")\n"
                          "            else\n"
                          "                plain+=(\"${word//:/\\\\:}:${line#*$'\\t'}\")\n"
                          "            fi\n"
                          "            ;;\n"
                          "        esac\n"
                          "    done\n"
                          "    (($#plain)) && _describe trireme plain && found=0\n"
                          "    (($#open)) && _describe setting open -S '' && found=0\n"
                          "    if [[ -n $kind ]]; then\n"
                          "        [[ -z $front ]] || compset -P \"${(b)front}\"\n"
                          "        if [[ $kind == files ]]; then\n"
                          "            _files && found=0\n"
                          "        else\n"
                          "            _files -/ && found=0\n"
                          "        fi\n"
                          "    fi\n"
                          "    return found\n"
                          "}\n"
                          "if [[ $funcstack[1] == _trireme ]]; then\n"
                          "    _trireme \"$@\"\n"
                          "else\n"
                          "    compdef _trireme trireme\n"
                          "fi\n";

int tri_verb_completion(const tri_cli *cli)
{
    const char *shell = cli->num_operands == 1 ? cli->operands[0] : "";
    if (strcmp(shell, "bash") == 0)
        fputs(bash, stdout);
    else if (strcmp(shell, "zsh") == 0)
        fputs(zsh, stdout);
    else {
        tri_cli_error("name one shell, bash or zsh: eval \"$(trireme completion bash)\"");
        return TRI_EXIT_USAGE;
    }
    return TRI_EXIT_OK;
}
