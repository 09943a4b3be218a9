/* The program: the table of verbs, and the way from argv to one of them and to an exit code. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/text.h"
#include "cli/cli.h"
#include "cli/signals.h"
#include "cli/text.h"
#include "cli/words/completion.h"

/* docs/json.md lists what each prints. */
#define JSON_FLAG                                                                                  \
    {                                                                                              \
        "json", NULL, "one JSON document instead of the text"                                      \
    }

static const tri_flag settings_flags[] = {
    {"aliases", NULL, "what other trainers call the settings"},
    {"markdown", NULL, "print docs/settings.md; with --aliases, docs/coming-from.md"},
    JSON_FLAG,
    {0},
};

static const tri_flag train_flags[] = {
    {"dry-run", NULL, "stop before the first step: plan, proof, disk and the first row"},
    {"name", "NAME", "write to runs/NAME (run.dir=runs/NAME)"},
    {"resume", NULL, "go on from the newest checkpoint of run.dir (run.resume=true)"},
    {"quiet", NULL, "print only warnings, errors and the last line"},
    {"news", "FD", NULL}, /* of the library, which starts this program: api/run_processes.c */
    {"detach", NULL, "return when the run has begun; it goes on in the background"},
    {0},
};

#define BEST_FLAG                                                                                  \
    {                                                                                              \
        "best", NULL, "the checkpoint of the run with the least held-out loss (ckpt.keep_best)"    \
    }

static const tri_flag generate_flags[] = {
    BEST_FLAG,
    {"prompt", "TEXT", "text to continue; - reads it from standard input"},
    {"prompts", "FILE",
     "a prompt on each line, or JSON lines {\"prompt\": ...}; - is standard input"},
    {"prompt-ids", "LIST", "the prompt as token numbers: \"1 2 3\""},
    {"tokens", "N", "tokens to generate, at most (generate.tokens)"},
    {"temperature", "X", "0 takes the likeliest token (generate.temperature)"},
    {"top-k", "N", "generate.top_k"},
    {"top-p", "X", "generate.top_p"},
    {"min-p", "X", "generate.min_p"},
    {"repetition-penalty", "X", "generate.repetition"},
    {"samples", "N", "texts for each prompt (generate.samples)"},
    {"seed", "N", "generate.seed"},
    {"batch", "N", "texts made at a time (generate.batch)"},
    {"stop", "TEXT", "end before this text; may be given several times; \\n is a line end"},
    {"json", NULL, "a line of JSON for each text"},
    {"ids", NULL, "token numbers instead of text; with --json, beside it"},
    {"stats", NULL, "tokens per second and memory, to standard error"},
    {0},
};

static const tri_flag eval_flags[] = {
    BEST_FLAG,
    {"data", "FILE", "the text to predict; - is standard input; by default what was held out"},
    {"stride", "N", "with --data: tokens from one window to the next (default data.seq_len)"},
    JSON_FLAG,
    {0},
};

static const tri_flag plan_flags[] = {
    {"search", NULL, "the fastest layouts for a machine, and why"},
    {"advise", NULL, "a layout by the rules of textbooks, with numbers"},
    {"devices", "N", "search, advise: so many; search: 8..1024 tries powers of two"},
    {"cluster", "NAME:N", "search, advise: how they are linked: dgx-h100:32 has 32 nodes"},
    {"link", "NAME", "search, advise: without --cluster: nvlink4 or 25GB/s between all"},
    {"efficiency", "SHARE", "search: 0.5: this share of the datasheet, no profile"},
    {"profile", "FILE|here", "search: by what `bench device` measured; here: measure it"},
    {"fix", "KEY=VALUE", "search: keep this setting, layout.tp=8 say; may be repeated"},
    {"budget", "BYTES", "search: what a rank may take (default: nearly all of the device)"},
    {"objective", "WHAT", "search: time (default), memory, energy or money"},
    {"fp8-too", NULL, "search: try precision.linear=fp8, too"},
    {"top", "N", "search: layouts to list, each of another mesh (default 10)"},
    {"exact", "N", "search: layouts to look at exactly, at most (default 400)"},
    {"tokens", "N", "a whole run's arithmetic: FLOP, devices, days, energy, money"},
    {"rate", "FLOPS", "tokens: FLOP/s that a device reaches, such as 160e12"},
    {"generation", NULL, "memory to generate: weights, keys and values of rows"},
    {"rows", "LIST", "generation: texts at a time (default 1,8,64)"},
    {"length", "LIST", "generation: tokens of each (default 2048,8192)"},
    {"weight-bytes", "X", "generation: of each parameter (default 2)"},
    {"device", "NAME",
     "advise, tokens, generation, goodput, search: of place --devices; of a run, with --mfu"},
    {"mfu", "SHARE", "tokens: of the device's rate that is reached (default 0.5)"},
    {"days", "N", "tokens, goodput, search: for so many days; goodput: so many if nothing fails"},
    {"gpus", "N", "tokens, goodput: on so many devices; tokens: how many days?"},
    {"batch-tokens", "N", "tokens: how many devices does a batch of so many keep busy?"},
    {"price", "MONEY", "tokens, goodput, search: of a device for an hour"},
    {"watts", "W", "tokens, goodput, search: of a device (default: its datasheet's)"},
    {"pue", "X", "tokens, goodput: energy of the building for each of the devices' (default 1)"},
    {"goodput", NULL, "how long a run really takes with failures, saves and restarts"},
    {"step", "TIME", "goodput: of a step, 5.2s"},
    {"steps", "N", "goodput: of the run"},
    {"mtbf", "RATE", "goodput: of a device: llama3 (default), rsc1, 50000h or 12/30d/512"},
    {"save", "TIME", "goodput: of a checkpoint: 60s, or 4.9TB@200GB/s"},
    {"blocking", "SHARE", "goodput: of a save, in which steps stand still (default 1)"},
    {"restart", "TIME", "goodput: to notice a failure, start again and load (default 10min)"},
    {"interval", "TIME", "goodput: of steps between saves (default: the best)"},
    {"jitter", "SHARE[:LAW]", "goodput: of a device's step; normal, lognormal, exponential"},
    {"slow", "SHARE:BY", "goodput: 0.1%:20%, a device in 1000 takes a fifth longer"},
    {"spares", "N:TIME", "goodput: 16:2d, spare nodes and the time of a repair (16x4: of 4)"},
    {"simulate", "N", "goodput: so many runs, device by device, beside the mean"},
    {"draw", "FILE|DIR", "goodput, search: pictures; FILE.svg of goodput, a folder of the search"},
    {"activations", "[TOKENS]", "what papers say is kept for the backward, beside the plan"},
    {"params", "[N]", "list every parameter; --params 175e9 --tokens: a run without a model"},
    {"ledger", NULL, "list what is kept for the backward, tensor by tensor, beside the textbook"},
    {"rank", "R", "the plan of this rank (default 0)"},
    {"page", NULL, NULL}, /* of the page about runs: cli/watch/watch_plan.c */
    JSON_FLAG,
    {0},
};

static const tri_flag explain_flags[] = {
    {"summary", NULL, "totals only"},
    {"all", NULL,
     "every instruction; repeated layers, and the tensors of one message, are folded otherwise"},
    {"mode", "MODE", "train (default), eval, predict, prefill, decode or repeat"},
    {"rank", "R", "the program of this rank (default 0)"},
    {"graph", NULL, "the graph before it becomes a program"},
    {"deal", NULL, "which tokens of the first batch each context-parallel rank gets (layout.cp)"},
    {"draw", "FILE.svg", "with --deal: a picture of the first row"},
    {"ops", NULL, "what each operator means"},
    {"markdown", NULL, "with --ops: as a page, docs/operators.md"},
    JSON_FLAG,
    {0},
};

static const tri_flag check_flags[] = {
    {"break", "FAULT", "break the program first, to see the checker find it; list names them"},
    JSON_FLAG,
    {0},
};

static const tri_flag bench_flags[] = {
    {"steps", "N", "steps to measure (5); generate: tokens (32)"},
    {"paced", NULL, "train: begin each step after a line on standard input, and print its time"},
    {"json", NULL, "lines of JSON instead of the table"},
    {"ops", "LIST", "comm: all_reduce,all_gather,reduce_scatter,..."},
    {"algorithms", "LIST", "comm: ring,tree,torus2d:8x4,... or auto"},
    {"sizes", "LIST", "comm: 1k,32k,1m,16m,128m, of 1024 bytes"},
    {"ranks", "N", "comm, scaling, device: how many (2; 1,2,.. to all cores; device: of messages)"},
    {"axis", "NAME", "scaling: dp (default), tp, pp or cp"},
    {"transport", "NAME", "comm: shm (processes, the default), tcp, mpi or thread"},
    {"private", NULL, "comm: vectors in memory that peers cannot read"},
    {"check", NULL, "comm: look at the results of every sample"},
    {"draw", "ALGORITHM|FILE.svg",
     "comm, matmul: a picture; comm: the rounds of an algorithm (list: which)"},
    {"shapes", "LIST", "matmul: 1024,8x4096x4096 (rows x columns x sum)"},
    {"turns", NULL, "comm: algorithms of a size take turns"},
    {"use", NULL, "comm: ranks read their results within the time"},
    {"out", "FILE", "device: the profile to write (device.json)"},
    {"seconds", "N", "device: at most so long (60; on a GPU 300)"},
    {"predict", NULL, "comm: what the formulas make of what messages cost here; with --turns"},
    {0},
};

static const tri_flag ckpt_flags[] = {
    {"hf", "DIR", "export: the Hugging Face directory to write; must not exist, or be empty"},
    {"weights", "FILE", "export: the safetensors file to write"},
    {"json", NULL, "inspect, verify, diff: one JSON document instead of the text"},
    {0},
};

static const tri_flag data_flags[] = {
    {"tokenizer", "PATH",
     "a tokenizer.json, a directory with one, bytes, chars:FILE; prepare: also chars, bpe:N"},
    {"field", "NAME", "prepare, train: where the text is in JSONL (default text)"},
    {"shard-tokens", "N", "prepare: tokens in a file (default 100000000)"},
    {"split", "SHARE", "prepare: this share of the documents is kept for evaluation, 0.05 say"},
    {"separator", "ID", "prepare: the token that ends a document, or none (default: end of text)"},
    {"force", NULL, "prepare: replace an earlier result of the same name"},
    {"vocab", "N", "train: tokens wanted, 256 bytes and special ones included"},
    {"out", "PATH", "train: the tokenizer.json to write; prepare: the directory"},
    {"style", "NAME", "train: gpt2 (default), llama3, qwen or bytes"},
    {"min-frequency", "N", "train: pairs that are rarer make no token (default 2)"},
    {"whole-text", NULL, "train: words may span lines; by default each line stands alone"},
    {"special", NULL, "encode: add the special tokens that begin and end a text"},
    {"plain", NULL, "encode, prepare: text that spells a special token is ordinary text"},
    {"count", NULL, "encode: only the number of tokens and the speed"},
    {"skip-special", NULL, "decode: leave special tokens out"},
    {"json", NULL, "inspect: one JSON document instead of the text"},
    {0},
};

static const tri_flag runs_flags[] = {
    {"watch", NULL, "draw the table again every two seconds, until Ctrl-C"},
    {"json", NULL, "a line of JSON for each run; diff: an object"},
    {"wait", "S", "stop: wait for the end at most so many seconds (default 60)"},
    {"yes", NULL, "rm: do not ask"},
    {0},
};

static const tri_flag watch_flags[] = {
    {"port", "N", "of the page (default 7717; 0: any that is free)"},
    {"address", "A", "to listen on, 0.0.0.0 say (default: this machine alone); needs a token"},
    {"token-file", "FILE", "a secret that who looks must know (default: made where one is needed)"},
    {0},
};

static const tri_flag plot_flags[] = {
    {"x", "WHAT", "steps (default), tokens or hours"},
    {"y", "WHAT", "loss (default), eval_loss, lr, grad_norm or tokens_per_s"},
    {"smooth", "N", "the mean of N points (default 1)"},
    {"log", NULL, "a logarithmic axis for the values"},
    {"draw", "FILE.svg", "write a picture; without it the curve is dots in the terminal"},
    {0},
};

static const tri_flag report_flags[] = {
    {"output", "FILE", "the file to write (report.html); -o FILE is the same"},
    {0},
};

static const tri_flag profile_flags[] = {
    {"draw", "FILE.svg", "a picture of the last step: the rows of all ranks"},
    JSON_FLAG,
    {0},
};

static const tri_flag doctor_flags[] = {
    {"validate", NULL, "time products, copies and links of each rank, and name those that are off"},
    {"cluster", "FILE", "measure the links of all ranks, and write them down for sim --cluster"},
    {"ranks", "N", "validate, cluster: so many on this machine (default: one for each core)"},
    JSON_FLAG,
    {0},
};

static const tri_flag sweep_flags[] = {
    {"over", "KEY=VALUES", "a setting that varies: optim.lr=1e-3,3e-3 or run.seed=1..3; repeat it"},
    {"random", "N", "draw N runs instead of the whole grid; ranges are even in their logarithm"},
    {"seed", "N", "of --random (default 0)"},
    {"halve", "K", "in stages: the best of every K runs go on, the others stop there"},
    {"jobs", "N", "runs at a time (default 1)"},
    {"name", "NAME", "write to runs/NAME (default: run.dir of the recipe, and -sweep)"},
    {"json", NULL, "a line of JSON for each run instead of the table"},
    {0},
};

static const tri_flag man_flags[] = {
    {"list", NULL, "the names of all pages: trireme, trireme-train, ..."},
    {0},
};

static const tri_flag sim_flags[] = {
    {"schedule", "NAME", "1f1b (default), zb-v ...; csv:FILE for your own"},
    {"list", NULL, "the schedules that there are"},
    {"pp", "N", "pipeline ranks (default 4)"},
    {"microbatches", "N", "of a step (default twice the ranks)"},
    {"chunks", "N", "of layers on each rank, where there is a choice"},
    {"cost", "LIST", "times of a chunk: F=1,I=1,W=1,B=2,FB=3,U=0,comm=0 (B defaults to I + W)"},
    {"draw", "FILE.svg|DIR", "a picture; with --device a timeline, DIR: all"},
    {"csv", "FILE", "write the order as a table that csv:FILE reads"},
    {"comms", NULL, "with --csv: sends and receives too"},
    {"compare", NULL, "all schedules: bubble, activations, weights"},
    {"collective", "OP", "all_reduce, ...: its time by every algorithm"},
    {"ranks", "N", "collective: how many (default 8)"},
    {"bytes", "LIST", "collective: sizes of the vector (default 1GB,10kB)"},
    {"alpha", "TIME", "collective: latency of a message (default 5us)"},
    {"bandwidth", "RATE", "collective: of a link (default 50GB/s), or --link"},
    {"algorithms", "LIST", "collective: ring,torus2d:8x4,... (default: all that fit)"},
    {"trace", "RUN_DIR", "the pipeline of a run that had run.trace=true"},
    {"device", "NAME", "time a step of FILE.yaml on devices, h100 say"},
    {"cluster", "NAME:N", "how they are linked: dgx-h100:32 has 32 nodes"},
    {"profile", "FILE|here", "by what `bench device` measured; here: measure it"},
    {"link", "NAME", "without --cluster: nvlink4 or 25GB/s between all"},
    {"like", "NAME", "as megatron-core, fsdp ... run it (fitted)"},
    {"efficiency", "SHARE", "0.5: this share of the datasheet, no profile"},
    JSON_FLAG,
    {0},
};

#define MODEL_SECTIONS "model data train optim layout precision run"
#define MODEL_SETTINGS                                                                             \
    "model.preset model.dim model.num_layers data.seq_len train.batch layout.dp "                  \
    "layout.tp layout.pp layout.microbatches precision.kind"

const tri_verb tri_verbs[] = {
    {"train", "train a model; weights and metrics go to run.dir", "[RECIPE | FILE.yaml]",
     MODEL_SECTIONS " ckpt",
     "data.source data.tokenizer data.seq_len model.preset model.dim model.num_layers train.batch "
     "train.steps optim.lr optim.schedule precision.kind layout.dp layout.microbatches run.device "
     "run.dir run.resume ckpt.every ckpt.keep_last",
     TRI_OPERANDS_SETTINGS, train_flags, tri_verb_train},
    {"generate", "continue a prompt with a trained model", "[RUN_DIR | HF_DIR | FILE.yaml]",
     "model precision run generate", "run.device run.threads precision.kind generate.context",
     TRI_OPERANDS_SETTINGS, generate_flags, tri_verb_generate},
    {"eval", "measure how well a trained model predicts text", "[RUN_DIR | HF_DIR | FILE.yaml]",
     "model data train precision run",
     "data.source data.seq_len train.batch train.eval_batches run.device run.threads "
     "precision.kind",
     TRI_OPERANDS_SETTINGS, eval_flags, tri_verb_eval},
    {"plan", "show the memory a run needs, before anything is allocated", "[RECIPE | FILE.yaml]",
     MODEL_SECTIONS, MODEL_SETTINGS " layout.zero layout.recompute run.memory_limit",
     TRI_OPERANDS_SETTINGS, plan_flags, tri_verb_plan},
    {"place", "calculate on paper: shards, products, messages; bytes, times",
     "['A[I:256@x, J] . B[J, K@y] -> C[I, K]' ...]", "", NULL, TRI_OPERANDS_WORDS, tri_place_flags,
     tri_verb_place},
    {"explain", "print the program of a step, instruction by instruction", "[RECIPE | FILE.yaml]",
     MODEL_SECTIONS, MODEL_SETTINGS, TRI_OPERANDS_SETTINGS, explain_flags, tri_verb_explain},
    {"check", "prove that the program of a step is right, without running it",
     "[RECIPE | FILE.yaml]", MODEL_SECTIONS, MODEL_SETTINGS, TRI_OPERANDS_SETTINGS, check_flags,
     tri_verb_check},
    {"sim", "prove, time and draw a pipeline schedule",
     "[--schedule NAME] [--pp N] | FILE.yaml --device NAME | --profile FILE", MODEL_SECTIONS,
     "model.preset data.seq_len train.batch layout.pp layout.schedule layout.microbatches",
     TRI_OPERANDS_SETTINGS, sim_flags, tri_verb_sim},
    {"view", "pages of schedules, placements, collectives and programs, in a browser",
     "[RECIPE | FILE.yaml]", MODEL_SECTIONS, MODEL_SETTINGS, TRI_OPERANDS_SETTINGS, tri_view_flags,
     tri_verb_view},
    {"bench", "time training steps, scaling, products, messages, devices",
     "[train | FILE.yaml | generate | scaling | matmul | comm | device]", MODEL_SECTIONS,
     "model.preset train.batch run.device run.threads", TRI_OPERANDS_NAMES, bench_flags,
     tri_verb_bench},
    {"ckpt", "look into checkpoints and weights, check, compare and export them",
     "inspect PATH | verify PATH | diff A B | export [PATH] --hf DIR|--weights FILE", "run.dir",
     NULL, TRI_OPERANDS_WORDS, ckpt_flags, tri_verb_ckpt},
    {"data", "turn text into tokens to train on; train and try tokenizers",
     "prepare TEXT ... | inspect PATH | tokenizer train TEXT ... | tokenizer encode|decode|inspect "
     "[FILE]",
     "run.threads", NULL, TRI_OPERANDS_WORDS, data_flags, tri_verb_data},
    {"runs", "list runs and how they go; compare, follow, stop and remove them",
     "[DIR ...] | diff A B | attach RUN | stop RUN ... | rm RUN ...", "", NULL, TRI_OPERANDS_WORDS,
     runs_flags, tri_verb_runs},
    {"watch", "show runs in a browser, also those that go on", "[RUN | DIR ...]", "", NULL,
     TRI_OPERANDS_WORDS, watch_flags, tri_verb_watch},
    {"plot", "draw the losses of runs, in the terminal or as a picture", "RUN [RUN ...]", "", NULL,
     TRI_OPERANDS_WORDS, plot_flags, tri_verb_plot},
    {"profile", "say where the time of a traced run went, by rank, operator and axis", "RUN", "",
     NULL, TRI_OPERANDS_WORDS, profile_flags, tri_verb_profile},
    {"report", "make one file of runs to send to somebody: their page, with all that it shows",
     "RUN [RUN ...]", "", NULL, TRI_OPERANDS_WORDS, report_flags, tri_verb_report},
    {"sweep", "train a recipe with other settings, many times, and compare",
     "[RECIPE | FILE.yaml] --over KEY=VALUES ...", MODEL_SECTIONS " ckpt",
     "train.steps train.eval_every optim.lr train.batch run.dir ckpt.every", TRI_OPERANDS_SETTINGS,
     sweep_flags, tri_verb_sweep},
    {"doctor", "say what this machine has, and what is missing", "", "run",
     "run.dir run.nccl_library", TRI_OPERANDS_NONE, doctor_flags, tri_verb_doctor},
    {"settings", "list the settings, or show what a file resolves to", "[FILE.yaml | NAME ...]",
     NULL, "", TRI_OPERANDS_NAMES, settings_flags, tri_verb_settings},
    {"completion", "print what makes a shell complete commands of trireme", "bash|zsh", "", NULL,
     TRI_OPERANDS_WORDS, NULL, tri_verb_completion},
    {"man", "print a manual page, for man: that of the program, or of a verb", "[VERB]", "", NULL,
     TRI_OPERANDS_WORDS, man_flags, tri_verb_man},
    {0},
};

bool tri_verb_takes_plugins(const tri_verb *verb)
{
    return verb->operands == TRI_OPERANDS_SETTINGS &&
           (!verb->sections || strstr(verb->sections, "model"));
}

const tri_verb *tri_verb_find(const char *name)
{
    for (const tri_verb *verb = tri_verbs; verb->name; verb++)
        if (strcmp(verb->name, name) == 0)
            return verb;
    return NULL;
}

void tri_cli_error(const char *format, ...)
{
    va_list args;
    bool colour = tri_terminal_colour(stderr);
    if (!tri_signals_may_write(STDERR_FILENO))
        return;
    fflush(stdout); /* so that the two stay in order when they share a terminal */
    fprintf(stderr, "%strireme:%s ", colour ? "\033[1;31m" : "", colour ? "\033[0m" : "");
    va_start(args, format);
    tri_text_vprint(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
}

int tri_cli_fail(const tr_error *err)
{
    tri_cli_error("%s", err->message);
    bool theirs = err->status == TR_ERROR_INPUT || err->status == TR_ERROR_DAMAGED;
    return theirs ? TRI_EXIT_USAGE : TRI_EXIT_FAILED;
}

static int run_verb(const tri_verb *verb, int num_args, char **args)
{
    tri_cli cli;
    tr_error err = {0};
    if (tri_cli_init(&cli, verb, num_args, args, &err) != TR_OK)
        return tri_cli_fail(&err);
    int code = TRI_EXIT_OK;
    if (cli.wants_help)
        tri_help_write_verb(stdout, verb, cli.wants_all);
    else
        code = verb->run(&cli);
    tri_cli_fini(&cli);
    return code;
}

/* trireme help [VERB [all]], which is also trireme --help [VERB [all]]. */
static int help(const char *name, const char *more)
{
    tr_error err = {0};
    if (!name) {
        tri_help_write(stdout);
        return TRI_EXIT_OK;
    }
    const tri_verb *verb = tri_verb_find(name);
    if (!verb) {
        tri_verb_unknown(name, &err);
        return tri_cli_fail(&err);
    }
    tri_help_write_verb(stdout, verb, more && strcmp(more, "all") == 0);
    return TRI_EXIT_OK;
}

static int dispatch(int argc, char **argv)
{
    if (argc < 2) {
        tri_help_write(stderr);
        return TRI_EXIT_USAGE;
    }
    const char *word = argv[1];
    if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0 || strcmp(word, "help") == 0)
        return help(argv[2], argv[2] ? argv[3] : NULL);
    if (strcmp(word, "--version") == 0 || strcmp(word, "-V") == 0 || strcmp(word, "version") == 0) {
        printf("trireme %s\n", TRIREME_VERSION);
        return TRI_EXIT_OK;
    }
    if (strcmp(word, TRI_COMPLETE_WORD) == 0)
        return tri_complete(argc - 2, argv + 2);
    const tri_verb *verb = tri_verb_find(word);
    if (verb)
        return run_verb(verb, argc - 2, argv + 2);
    tr_error err = {0};
    tri_verb_unknown(word, &err);
    return tri_cli_fail(&err);
}

/* A descriptor below 3 that is closed would become that of the next file that is opened, and what
 * is printed would go there. One that cannot be used in this direction fails as a closed one does.
 */
static void fill_closed(void)
{
    for (int fd = 0; fd < 3; fd++)
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF)
            (void)!open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY);
}

/* A full disk behind a redirected output must not look like success. A reader that has gone (head)
 * had what it wanted. */
static int judge_output(int code)
{
    struct pollfd output = {.fd = STDOUT_FILENO, .events = POLLOUT};
    if ((fflush(stdout) == 0 && !ferror(stdout)) || code != TRI_EXIT_OK)
        return code;
    int reason = errno;
    if (poll(&output, 1, 0) == 1 && (output.revents & POLLERR))
        return code;
    tri_cli_error("cannot write the output: %s", strerror(reason));
    return TRI_EXIT_FAILED;
}

int main(int argc, char **argv)
{
    fill_closed();
    signal(SIGXFSZ, SIG_IGN); /* a file that must not grow (ulimit -f) fails to be written, and that
                                 is told; by default it would end the program without a word */
    int code = judge_output(dispatch(argc, argv));
    /* A shell that runs this in a loop stops the loop only when Ctrl-C has ended it. */
    if (code == TRI_EXIT_INTERRUPTED)
        tri_signals_die_of(SIGINT);
    return code;
}
