#!/usr/bin/env bash
# Plug-ins: the example is built against what this build installs, trains on two ranks as on one, is
# resumed and generates; and files that are none, or may be somebody else's, are refused in words.
# Argument: the build directory.
set -u
build=$1
trireme=$build/trireme
work=$(mktemp -d "${TMPDIR:-/tmp}/trireme-plugin-XXXXXX")
trap 'rm -rf "$work"' EXIT
checks=0 failures=0
read -ra cc <<<"${CC:-cc}" # may be two words: ccache gcc
umask 022

check() { # what, then a command
    local what=$1
    shift
    checks=$((checks + 1))
    "$@" >"$work/out" 2>&1 && return
    echo "FAILED: $what"
    tail -n 5 "$work/out"
    failures=$((failures + 1))
}
# Exit code 2, and words that the message must have.
refused() { # words, then arguments of trireme
    local words=$1
    shift
    checks=$((checks + 1))
    "$trireme" "$@" >"$work/out" 2>&1
    local code=$?
    if [ $code -ne 2 ] || ! grep -qF -- "$words" "$work/out"; then
        echo "FAILED: trireme $* ends with $code and without \"$words\""
        tail -n 3 "$work/out"
        failures=$((failures + 1))
    fi
}

# ---- built as a stranger would ----
sanitize=
nm "$build/libtrireme.a" 2>/dev/null | grep -m1 -q __asan_init && sanitize=-fsanitize=address,undefined
nm "$build/libtrireme.a" 2>/dev/null | grep -m1 -q __tsan_init && sanitize=-fsanitize=thread
cuda=no
[ -f "$build/cuda-yes" ] && cuda=yes
make --no-print-directory install-files BUILD="$build" CUDA=$cuda SANITIZE=$sanitize PREFIX="$work/usr" DESTDIR= \
    >"$work/out" 2>&1 ||
    {
        echo "FAILED: make install-files"
        tail -n 5 "$work/out"
        exit 1
    }
mkdir "$work/own"
cp examples/plugin/* "$work/own"
check "the example builds" env PKG_CONFIG_PATH="$work/usr/lib/pkgconfig" make -s -C "$work/own" CC="${cc[*]}" CFLAGS=-O1
plugin=$work/own/parallel.so
[ -f "$plugin" ] || exit 1
check "it needs nothing of Trireme" bash -c "! nm -D --undefined-only '$plugin' | grep -q 'tri\?_'"

# ---- used ----
small=(model.num_layers=2 model.dim=32 model.num_heads=4 model.num_kv_heads=2 data.seq_len=32 train.batch=4
    train.steps=6 run.threads=1 run.device=cpu model.kind=parallel optim.kind=nsgd optim.schedule=rsqrt
    optim.lr=0.02 optim.rsqrt_steps=4 model.parallel_act=gelu train.eval_batches=1 generate.tokens=4)
set_all=()
for s in "${small[@]}"; do set_all+=(--set "$s"); done
train() { # name, then more
    local name=$1
    shift
    check "train $name" "$trireme" train --plugin "$plugin" "${set_all[@]}" --set run.dir="$work/$name" "$@"
}
losses() { sed -n 's/.*"loss": *\([-0-9.e+]*\).*/\1/p' "$work/$1/metrics.jsonl"; }
like_one() { # name
    checks=$((checks + 1))
    paste <(losses one) <(losses "$1") | awk 'NF != 2 || ($1 - $2) ^ 2 > 1e-9 * $1 * $1 { bad = 1 }
        END { exit bad || NR < 6 }' && return
    echo "FAILED: $1 does not train as one rank"
    failures=$((failures + 1))
}
train one
like_one one
train tp --set layout.tp=2
like_one tp
train dp --set layout.dp=2 --set layout.zero=2
like_one dp
train pp --set layout.pp=2 --set layout.microbatches=2
like_one pp
# shellcheck disable=SC2016
check "the rate falls as the schedule says" awk -F'"lr": *' '{ split($2, a, ","); lr[NR] = a[1] }
    END { exit !(lr[5] / lr[1] > 0.70710 && lr[5] / lr[1] < 0.70711) }' "$work/one/metrics.jsonl"

# ---- gone on with: the run remembers what it needs, and does not load it by itself ----
check "the run keeps the path" grep -q "plugins: \"$plugin\"" "$work/one/config.yaml"
check "the run keeps its settings" grep -q 'parallel_act: "gelu"' "$work/one/config.yaml"
refused "needs the plug-in $plugin (run.plugins)" generate "$work/one" --prompt a
refused "give --plugin $plugin" eval "$work/one"
# Who only looks at runs needs no code of theirs.
check "runs lists it" bash -c "'$trireme' runs '$work/one' | grep -q done"
check "runs diff compares it" bash -c "'$trireme' runs diff '$work/one' '$work/tp' | grep -q 'layout.tp'"
cp -r "$work/one" "$work/again"
check "a new run moves it aside" "$trireme" train --plugin "$plugin" "${set_all[@]}" --set run.dir="$work/again"
check "it is there" bash -c "ls -d '$work'/again?* | grep -q ."
check "generate" "$trireme" generate "$work/one" --plugin "$plugin" --prompt abc --tokens 3
refused "needs the plug-in $plugin (run.plugins)" ckpt export "$work/one" --weights "$work/w.safetensors"
check "ckpt export" "$trireme" ckpt export "$work/one" --weights "$work/w.safetensors" --plugin "$plugin"
check "what was exported" test -s "$work/w.safetensors"
check "eval" "$trireme" eval "$work/one" --plugin "$plugin"
check "plan, with a moment for each weight" "$trireme" plan "$work/one" --plugin "$plugin"
mkdir "$work/moved" && cp "$plugin" "$work/moved/"
check "a plug-in that moved" "$trireme" eval "$work/one" --plugin "$work/moved/parallel.so"
train resumed --set ckpt.every=3 --set train.steps=3 --set layout.dp=2
cp -r "$work/resumed" "$work/other"
train resumed --set train.steps=6 --resume --set layout.tp=2
cp "$work/out" "$work/said"
like_one resumed
check "no word about the same code" bash -c "! grep -q 'other plug-ins' '$work/said'"
sed 's/"1"/"2"/' "$work/own/parallel.c" >"$work/moved/parallel.c"
check "another version" "${cc[@]}" -std=c17 -Iinclude -shared -fPIC "$work/moved/parallel.c" -o "$work/moved/parallel.so" -lm
check "train with it" "$trireme" train --plugin "$work/moved/parallel.so" "${set_all[@]}" \
    --set run.dir="$work/other" --resume
cp "$work/out" "$work/said"
check "it says so" grep -q "begun with other plug-ins than it goes on with" "$work/said"

# ---- ranks that others start have the same code ----
port=$((20000 + RANDOM % 10000))
plugins=("$plugin" "$work/moved/parallel.so")
for rank in 0 1; do
    RANK=$rank WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port timeout 200 "$trireme" train \
        --plugin "${plugins[rank]}" "${set_all[@]}" --set layout.dp=2 --set run.dir="$work/apart" \
        >"$work/apart.$rank" 2>&1 &
    pids[rank]=$!
done
wait "${pids[0]}" "${pids[1]}"
check "other code on rank 1" grep -q "the plug-ins of rank 1 .* are not those of rank 0" "$work/apart.0" "$work/apart.1"

# ---- settings are like any other ----
check "settings are listed" bash -c "'$trireme' settings --plugin '$plugin' optim | grep -q optim.rsqrt_steps"
refused "did you mean model.parallel_act" plan --plugin "$plugin" --set model.paralel_act=relu
refused "expected one of silu, gelu, relu" plan --plugin "$plugin" --set model.parallel_act=x
refused "expected one of mlp, gpt2, llama, bert, parallel" plan --plugin "$plugin" --set model.kind=x
refused "must be even" plan --plugin "$plugin" "${set_all[@]}" --set model.head_dim=5
refused "expected one of mlp, gpt2, llama, bert" plan --set model.kind=parallel
check "a setting without effect" bash -c "'$trireme' train --dry-run --plugin '$plugin' \
    --set model.parallel_act=relu --set run.dir='$work/none' | grep -q 'no effect with model.kind=gpt2; set model.kind=parallel'"
check "in a group" "$trireme" plan --plugin "$plugin" --set "optim.groups=wte.* kind=nsgd"
check "by --set" "$trireme" plan --set run.plugins="$plugin" --set model.kind=parallel

# ---- in a program: what a plug-in brings is that of the settings that loaded it ----
cat >"$work/own/inside.c" <<'END'
#include <stdio.h>
#include <string.h>
#include <trireme/trireme.h>

static int train(const char *plugin, const char *dir, tr_run_ranks ranks, const char *program)
{
    char words[2][600];
    const char *more[] = {words[0],           words[1],          "model.kind=parallel", "model.num_layers=2",
                          "model.dim=32",     "data.seq_len=16", "train.batch=4",       "train.steps=3",
                          "run.device=cpu",   "run.threads=1",   "layout.tp=2",         "optim.kind=nsgd",
                          "model.vocab=64",   "optim.lr=0.02"};
    tr_settings *settings, *other;
    tr_error err = {0};
    tr_run_state state;
    tr_run_options options = {.ranks = ranks, .program = program};
    snprintf(words[0], sizeof words[0], "run.plugins=%s", plugin);
    snprintf(words[1], sizeof words[1], "run.dir=%s", dir);
    if (tr_settings_create(&settings, &err) != TR_OK || tr_settings_create(&other, &err) != TR_OK)
        return 1;
    tr_status status = TR_OK;
    for (size_t i = 0; status == TR_OK && i < sizeof more / sizeof *more; i++)
        status = tr_settings_set(settings, more[i], &err);
    if (tr_settings_set(other, "model.kind=parallel", NULL) != TR_ERROR_INPUT)
        return 2; /* those have not loaded it */
    if (status == TR_OK)
        status = tr_train(settings, &options, &state, &err);
    if (status != TR_OK) {
        fprintf(stderr, "%s\n", err.message);
        return 3;
    }
    tr_settings_destroy(other);
    tr_settings_destroy(settings);
    return state.step == 3 ? 0 : 4;
}

int main(int num, char **args)
{
    int code = num == 5 ? train(args[1], args[2], TR_RANKS_THREADS, NULL) : 9;
    return code ? code : train(args[1], args[3], TR_RANKS_PROCESSES, args[4]);
}
END
flags=$(PKG_CONFIG_PATH="$work/usr/lib/pkgconfig" pkg-config --cflags --libs trireme)
# shellcheck disable=SC2086
check "a program with the library links" "${cc[@]}" $sanitize "$work/own/inside.c" $flags -o "$work/inside"
check "it trains with the plug-in" "$work/inside" "$plugin" "$work/inside-a" "$work/inside-b" "$trireme"
[ -s "$work/out" ] && echo "FAILED: the library prints" && failures=$((failures + 1))
check "threads and processes train alike" cmp "$work/inside-a/weights.safetensors" "$work/inside-b/weights.safetensors"

# ---- refused ----
make_plugin() { # name, text of the table
    printf '#include "trireme/plugin.h"\n%s\n' "$2" >"$work/own/$1.c"
    "${cc[@]}" -std=c17 -Iinclude -shared -fPIC "$work/own/$1.c" -o "$work/own/$1.so" >"$work/out" 2>&1 ||
        {
            echo "FAILED: $1.c"
            cat "$work/out"
            failures=$((failures + 1))
        }
}
table='const tr_plugin trireme_plugin = {.abi = TR_PLUGIN_ABI, .name = "x", .version = "1", '
lr='static double rate(const tr_tools *t, const tr_lr *l, int64_t s) { (void)t; (void)s; return l->lr RATE; }'
# shellcheck disable=SC2016
sched='static const tr_plugin_schedule s[] = {{.kind = "KIND", .help = "h", .rate = rate}};'
refused "it cannot be opened: No such file" plan --plugin "$work/own/none.so"
make_plugin symbol 'int nothing;'
refused "without the symbol trireme_plugin" plan --plugin "$work/own/symbol.so"
make_plugin abi 'const tr_plugin trireme_plugin = {.abi = 77, .name = "x", .version = "1"};'
refused "built for version 77 of trireme/plugin.h, and this program has version 1" plan --plugin "$work/own/abi.so"
make_plugin empty "$table};"
refused "brings no model, no rule and no schedule" plan --plugin "$work/own/empty.so"
make_plugin null "$table .models = 0, .num_models = 3};"
refused "rows at no address" plan --plugin "$work/own/null.so"
make_plugin noemit 'static const tr_plugin_model m[] = {{.kind = "m", .help = "h"}};'"$table .models = m, .num_models = 1};"
refused "model.kind m has no help, params or emit" plan --plugin "$work/own/noemit.so"
make_plugin twice "${lr/RATE/}${sched/KIND/cosine}$table .schedules = s, .num_schedules = 1};"
refused "brings the optim.schedule cosine, which there is already" plan --plugin "$work/own/twice.so"
make_plugin wild "${lr/RATE//0}${sched/KIND/wild}$table .schedules = s, .num_schedules = 1};"
refused "gives a learning rate of inf for step 0" plan --plugin "$work/own/wild.so" --set optim.schedule=wild
make_plugin word "${lr/RATE/}${sched/KIND/No good}$table .schedules = s, .num_schedules = 1};"
refused "is not a name of small letters" plan --plugin "$work/own/word.so"
make_plugin headless 'static void p(const tr_tools *t, const tr_model *m, tr_params *p) {
    tr_dim w = {TR_DIM_WIDTH, m->dim}; t->params_enter(p, -1, ""); t->norm_params(p, "n", w, false); }
static void e(const tr_tools *t, const tr_model *m, tr_graph *g) { (void)m; t->linear(g, "n", 12345); }
static const tr_plugin_model m[] = {{.kind = "headless", .help = "h", .params = p, .emit = e}};'"$table .models = m, .num_models = 1};"
refused "gives n a value that there is not" plan --plugin "$work/own/headless.so" --set model.kind=headless
printf 'no code' >"$work/own/text.so"
refused "plug-in $work/own/text.so" plan --plugin "$work/own/text.so"
refused "not a file" plan --plugin "$work/own"

# Others may write to it, or to a folder above it.
cp "$plugin" "$work/own/writable.so"
chmod g+w "$work/own/writable.so"
refused "chmod go-w $work/own/writable.so" plan --plugin "$work/own/writable.so"
mkdir -p "$work/open/inner" && cp "$plugin" "$work/open/inner/"
chmod o+w "$work/open"
refused "others may write to its folder $work/open (mode" plan --plugin "$work/open/inner/parallel.so"
ln -s "$work/open/inner/parallel.so" "$work/own/link.so"
refused "others may write to its folder $work/open (mode" plan --plugin "$work/own/link.so"
if [ "$(id -u)" = 0 ]; then
    cp "$plugin" "$work/own/foreign.so"
    chown 12345 "$work/own/foreign.so"
    refused "belongs to user 12345" plan --plugin "$work/own/foreign.so"
else
    echo "skipped: a file of another user (only root can make one)"
fi

echo "$checks checks, $failures failures"
[ $failures -eq 0 ]
