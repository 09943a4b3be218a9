#!/usr/bin/env bash
# trireme runs and plot: what they say of runs in every state, on terminals of any width, and of
# folders that hold none. Argument: the build directory. Run from the root of the repository.
set -u
build=${1:-build}
trireme=$(cd "$build" && pwd)/trireme
tmp=$(mktemp -d /tmp/trireme-runs-XXXXXX)
failures=0 checks=0
trap 'rm -rf "$tmp"' EXIT
root=$PWD
cd "$tmp" || exit 1

fail() {
    failures=$((failures + 1))
    echo "FAILED: $*"
    head -c 2000 out err 2>/dev/null
}

# run CODE TEXT ARGS...: trireme ARGS ends with CODE, and what it prints holds TEXT.
run() {
    local want=$1 text=$2 code
    shift 2
    checks=$((checks + 1))
    "$trireme" "$@" >out 2>err </dev/null
    code=$?
    [ $code -eq "$want" ] || fail "trireme $* ended with $code, not $want"
    grep -qF -- "$text" out err || fail "trireme $* does not say \"$text\""
}

# is RUN COLUMN VALUE: what the list says in a column (as awk counts) of a run.
is() {
    local value
    checks=$((checks + 1))
    value=$("$trireme" runs | awk -v run="$1" -v column="$2" '$1 == run { print $column }')
    [ "$value" = "$3" ] || fail "column $2 of $1 is \"$value\", not \"$3\""
}

# ---- nothing there ----

run 0 'there are no runs in runs/ here; `trireme train tiny` makes one' runs
"$trireme" runs --json >out 2>err || fail "--json of no runs ends with $?"
[ -s out ] && fail "--json of no runs prints something"
run 2 'check the path: there is no gone in' runs gone
touch file
run 2 'file: is not a directory; name a run directory or a folder of them' runs file
mkdir -p empty
run 0 'there are no runs in empty' runs empty
run 2 "trireme runs reads no settings, so --set optim.lr=1 would change nothing; leave it out" runs --set optim.lr=1
run 2 "trireme plot reads no settings" plot runs/x --set optim.lr=1
run 2 '--watch redraws a table on a terminal, and the output is not one; leave it out' runs --watch

# ---- states: real runs, and made-up files ----

"$trireme" train "$root/recipes/tiny.yaml" --set train.steps=6 --set run.dir=runs/whole --set layout.dp=2 \
    --set run.save=false >train.out 2>&1 || fail "a run: $(tail -n 1 train.out)"
is runs/whole 2 'done'
is runs/whole 3 6/6
is runs/whole 8 dp2

now=$(date +%s)
# make_run NAME AGE EVENTS: ten of a hundred steps, half a second each, the last AGE seconds ago.
make_run() {
    mkdir -p "runs/$1"
    printf 'version: 1\ntrain:\n  steps: 100\n' >"runs/$1/config.yaml"
    for i in 1 2 3 4 5 6 7 8 9 10; do
        printf '{"step":%d,"loss":%d.5,"tokens":%d,"tokens_per_s":2000.0,"step_ms":500.0,"time":%d.%d,"version":2}\n' \
            "$i" $((11 - i)) $((i * 1000)) $((now - $2 - (10 - i) / 2)) $((i % 2 ? 0 : 5))
    done >"runs/$1/metrics.jsonl"
    printf '%s' "$3" >"runs/$1/events.jsonl"
}
start="{\"time\":\"2026-01-31T11:00:00Z\",\"event\":\"start\",\"host\":\"$(hostname)\",\"pid\":4711,\"layout\":{\"dp\":1,\"tp\":1,\"pp\":1},\"version\":2}
"
elsewhere=${start/$(hostname)/not-here}
ended() { printf '%s{"event":"end","steps":10,"saved":10,"exit_code":%d}\n' "$start" "$1"; }
make_run 'done' 1000 "$(ended 0)"
make_run stopped 1000 "$(ended 3)"
make_run interrupted 1000 "$(ended 130)"
make_run broken 1000 "$start$(printf '{"event":"failed","reason":"rank 2 was killed by SIGKILL"}\n{"event":"end","exit_code":1}')"
make_run killed 1000 "$start"
make_run running 0 "$start"
make_run stalled 1000 "$start"
make_run far 0 "$elsewhere"
make_run silent 1000 "$elsewhere"
make_run resumed 0 "$(ended 3)
$start"
make_run bare 1000 ''
rm runs/bare/events.jsonl
make_run torn 1000 "$(ended 0)"
printf '{"step":11,"loss":null,"tokens":11000,"time":%d}\n{"step":12,"lo' "$now" >>runs/torn/metrics.jsonl
mkdir runs/no-metrics runs/no-settings runs/bad-settings
cp runs/done/config.yaml runs/done/events.jsonl runs/no-metrics
cp runs/done/metrics.jsonl runs/done/events.jsonl runs/no-settings
cp runs/done/metrics.jsonl runs/bad-settings
echo 'train: {stepz: 7}' >runs/bad-settings/config.yaml
mkdir runs/nothing runs/notes && touch runs/notes/config.yaml
ln -s 'done' runs/a-link
ln -s . runs/in-a-circle

exec 8<runs/running 9<runs/stalled 7<runs/resumed
flock -xn 8 && flock -xn 9 && flock -xn 7 || fail "directories cannot be locked"
is runs/done 2 'done'
is runs/stopped 2 stopped
is runs/interrupted 2 stopped
is runs/broken 2 failed
is runs/killed 2 failed
is runs/running 2 running
is runs/running 3 10/100
is runs/running 4 45s
is runs/running 5 1.5000
is runs/running 7 2.00k
is runs/stalled 2 stalled
is runs/far 2 running
is runs/silent 2 stalled
is runs/resumed 2 running
is runs/bare 2 stopped
is runs/torn 3 11/100
is runs/torn 5 nan
is runs/no-metrics 3 0/100
is runs/no-settings 3 10/10
is runs/bad-settings 3 10
is runs/a-link 2 ''
is runs/notes 2 ''
exec 7<&- 8<&- 9<&-
is runs/running 2 failed
run 0 'rank 2 was killed by SIGKILL' runs
run 0 'it ended without a word: killed, or its machine went down' runs runs/killed
run 0 'RUN' runs runs/done runs/done/ runs/a-link
[ "$(wc -l <out)" -eq 2 ] || fail "a run that was named three times is there more than once"
run 0 '"state":"done","step":10,"total":100,' runs --json runs/done
checks=$((checks + 1))
[ "$("$trireme" runs | grep -c .)" -eq $(("$("$trireme" runs --json | grep -c '^{"run":.*"version":1}$')" + 1)) ] ||
    fail "--json has not a line for each run"

# Looking changes nothing but the summary, and that of long runs only.
checks=$((checks + 1))
[ -z "$(find runs -name '.*')" ] || fail "a list leaves files in short runs: $(find runs -name '.*')"

# ---- the terminal ----

on_terminal() { # COLUMNS: what a terminal of that width shows
    checks=$((checks + 1))
    TERM=xterm COLUMNS=$1 script -qec "$trireme runs" /dev/null </dev/null | tr -d '\r' >out
}
if command -v script >/dev/null; then
    for columns in 40 60 80 120 200; do
        NO_COLOR=1 on_terminal $columns
        widest=$(LC_ALL=C.UTF-8 wc -L <out)
        [ "$widest" -le $columns ] || fail "a line of $widest in $columns columns"
        grep -q $'\033' out && fail "colours in spite of NO_COLOR"
        grep -q '^RUN *STATE *STEP' out || fail "$columns columns: $(head -1 out)"
    done
    grep -q 'rank 2 was killed' out || fail "200 columns do not say why a run failed"
    NO_COLOR='' on_terminal 80
    grep -q $'\033\[31mfailed' out || fail "a run that failed is not red"

    # --watch draws until it is asked to end, and the last table stays. (Commands in the background
    # of a script are started with SIGINT ignored.)
    checks=$((checks + 1))
    TERM=xterm COLUMNS=60 timeout 300 script -qec "echo \$\$ >pid; exec $trireme runs --watch" watched </dev/null >/dev/null &
    for ((i = 0; i < 600; i++)); do
        grep -q 'runs/done' watched 2>/dev/null && break
        sleep 0.1
    done
    kill -TERM "$(cat pid)"
    wait $!
    code=$?
    [ $code -eq 3 ] || fail "--watch ends with $code after SIGTERM"
    grep -q 'runs/done' watched && ! grep -q '1049h\|?25l' watched || fail "--watch: $(cat -v watched)"
else
    echo "skipped: terminals (there is no script command)"
fi
checks=$((checks + 1))
"$trireme" runs | head -1 >out
grep -q $'\033' out && fail "colours in a pipe"

# Control characters of names do not reach the terminal.
cp -r runs/done "runs/$(printf 'x\033[31my')"
run 0 'x\x1b[31my' runs
grep -q $'\033' out && fail "an escape sequence of a name reached the terminal"

# ---- two runs beside each other ----

# says TEXT...: the output of the last command has these words, whatever the blanks between.
says() {
    checks=$((checks + 1))
    tr -s ' ' <out | grep -qF -- "$*" || fail "does not say \"$*\""
}
make_run a 1000 "$(ended 0)"
make_run b 1000 "$(ended 0)"
printf 'version: 1\ntrain:\n  steps: 100\noptim:\n  lr: 0.25\nrun:\n  dir: else\n' >runs/b/config.yaml
awk '{ sub(/"tokens":[0-9]+/, "\"tokens\":" 2000 * NR); sub(/\.5,/, ".25,") } 1' runs/a/metrics.jsonl >runs/b/metrics.jsonl
sed -i '5s/"version"/"eval_loss":3.5,"version"/; 10s/"version"/"eval_loss":3.25,"version"/' runs/a/metrics.jsonl
sed -i '5s/"version"/"eval_loss":3,"version"/; 9s/"version"/"eval_loss":4,"version"/' runs/b/metrics.jsonl
run 0 'settings that differ' runs diff a runs/b
says 'optim.lr 0.0003 0.25'
grep -q 'run.dir\|train.steps' out && fail "settings that do not matter or do not differ are there"
says 'step 1 10.50000 10.25000 -0.25000'
says 'step 5 6.50000 6.25000 -0.25000'
says 'step 10 1.50000 1.25000 -0.25000'
says '5,000 (steps 5, 3) 6.50000 8.25000 +1.75000'
grep -q ' 1,000 (' out && fail "tokens that one of them has not got to"
says 'step 5 3.50000 3.00000 -0.50000'
says 'best of A 3.25000 (step 10)'
says 'best of B 3.00000 (step 5)'
run 0 'no settings differ' runs diff runs/a runs/a
says 'the same, since both have as many tokens in a step'
run 0 '"settings":[{"name":"optim.lr",' runs diff a b --json
grep -q '"held_out":\[{"step":5,"a":3.5,"b":3.0,' out || fail "--json of a comparison"
run 0 'settings cannot be compared: runs/bad-settings/config.yaml' runs diff a bad-settings
run 2 'there is no run brokem; did you mean runs/broken? `trireme runs` lists those in runs/' runs diff a brokem
run 2 'runs/nothing: is not the directory of a run' runs diff a nothing
run 2 'file: is a file, not the directory of a run' runs diff a file
run 2 'runs/no-metrics: has no steps yet' runs diff a no-metrics
run 2 '`trireme runs diff A B [--json]`' runs diff a

# ---- curves ----

run 0 'loss  runs/a' plot a
says '10 ┤'
says '0 2 4 6 8 10 steps'
run 0 'written to a.svg' plot a b --draw a.svg
[ "$(grep -c '<path class="c c[01]" d="M.*L' a.svg)" -eq 2 ] || fail "not two curves: $(cat a.svg)"
grep -q '>runs/b</text>' a.svg && grep -q 'prefers-color-scheme:dark' a.svg || fail "a legend, and two schemes"
run 0 'written to a.svg' plot a --draw a.svg # one of ours is replaced
[ "$(grep -c 'class="c c' a.svg)" -eq 2 ] || fail "the picture is not a new one"
echo precious >mine.svg
run 2 'mine.svg: there is a file of that name, and it is no picture that trireme plot drew' plot a --draw mine.svg
[ "$(cat mine.svg)" = precious ] || fail "a file was overwritten"
run 2 'nowhere/a.svg' plot a --draw nowhere/a.svg
run 0 'held-out loss' plot a --y eval_loss --x tokens
says '10k tokens'
run 0 'loss, mean of 3 points' plot a --x hours --smooth 3 --log
run 2 'runs/done: its metrics.jsonl has no held-out loss over steps to draw' plot 'done' --y eval_loss
run 2 '--y is "los"; it may be loss, eval_loss, lr, grad_norm or tokens_per_s' plot a --y los
run 2 '--smooth is 0, out of range' plot a --smooth 0
run 2 'name one or more runs: trireme plot runs/tiny' plot

# Peaks stay, whatever the number of steps; a curve has a few hundred points, and gaps where there
# is no loss.
mkdir runs/peak
cp runs/done/config.yaml runs/done/events.jsonl runs/peak
awk 'BEGIN { for (i = 1; i <= 20000; i++) printf "{\"step\":%d,\"loss\":%s,\"time\":1790000000}\n", i,
    (i == 7777 ? 50 : i > 15000 && i < 16000 ? "null" : i == 3333 ? 0.5 : 2 + i % 7 / 10) }' >runs/peak/metrics.jsonl
run 0 'written to' plot peak --draw peak.svg
awk '/<path class="c c0" d=/ { n = split($0, p, /[ML]/); least = 1e9
    for (i = 3; i <= n; i++) { split(p[i], v, /[ "]/); if (v[2] < least) least = v[2]; if (v[2] > most) most = v[2] }
    print n, least, most, gsub(/[0-9]M/, ""); exit }' peak.svg >out
read -r points least most gaps <out
checks=$((checks + 1))
[ "$points" -gt 100 ] && [ "$points" -le 402 ] && [ "${least%.*}" -eq 44 ] && [ "${most%.*}" -ge 399 ] && [ "$gaps" -eq 1 ] ||
    fail "$points points from $least to $most with $gaps gaps"
for columns in 40 200; do
    checks=$((checks + 1))
    COLUMNS=$columns "$trireme" plot peak >out
    [ "$(LC_ALL=C.UTF-8 wc -L <out)" -le $columns ] || fail "a curve wider than $columns columns"
done
"$trireme" plot a | head -1 >out

# ---- stopping ----

# A run that is at work is asked by its process number. It goes on for ever otherwise.
"$trireme" train "$root/recipes/tiny.yaml" --set train.steps=1000000 --set run.dir=runs/long >train.out 2>&1 &
long=$!
for ((i = 0; i < 1200; i++)); do
    [ -s runs/long/metrics.jsonl ] && break
    sleep 0.05
done
is runs/long 2 running
run 2 'runs/long is not removed: a run is at work there; `trireme runs stop runs/long` ends it' runs rm long --yes
run 0 'to finish its step, save and end' runs stop long --wait 600
grep -q "runs/long: asked process $long to" out || fail "another process was asked than $long"
grep -q 'stopped after step [0-9]*, saved in ckpt/step-' out || fail "the end is not told"
wait $long
code=$?
[ $code -eq 3 ] || fail "a run that was stopped ended with $code"
is runs/long 2 stopped
run 2 'runs/long: no run is at work there, so there is none to stop' runs stop long

# A number that is somebody else's by now is left alone: one that has not the directory open, and one
# that began after the event.
sleep 300 >/dev/null 2>&1 &
other=$!
now_start=${start/2026-01-31T11:00:00Z/$(date -u -d '+1 hour' +%Y-%m-%dT%H:%M:%SZ)}
make_run reused 0 "${now_start/4711/$other}"
make_run later 0 "${start/4711/$$}"
exec 8<runs/reused 9<runs/later
flock -xn 8 && flock -xn 9
run 2 "but it is not process $other that events.jsonl names" runs stop reused
run 2 "but it is not process $$ that events.jsonl names" runs stop later
kill -0 $other || fail "a process that has nothing to do with a run was ended"
kill $other
exec 8<&- 9<&-
run 2 'on not-here is at work there, and this is' runs stop far
run 2 'there is no run nowhere' runs stop nowhere
run 2 '`trireme runs stop RUN ... [--wait S]`' runs stop
run 2 '`trireme runs rm RUN ... [--yes]`' runs stop far --yes

# ---- removing ----

run 2 'nothing is removed: there is no terminal to ask on; add --yes to remove runs/a' runs rm a
run 2 'runs/a-link is not removed: it is a link to' runs rm a-link --yes
run 2 'runs/nothing: is not the directory of a run' runs rm nothing --yes
run 2 'runs/far is not removed: it may be at work on not-here' runs rm far --yes
mkdir -p runs/fake && echo 'some: thing' >runs/fake/config.yaml && echo '{}' >runs/fake/metrics.jsonl
run 2 'runs/fake is not removed: its files are named like those of a run, and are none' runs rm fake --yes
cp -r runs/done runs/holds && cp -r runs/done runs/holds/inner
run 2 'runs/holds is not removed: it holds other runs; name those' runs rm holds --yes
cp -r runs/done runs/project && mkdir runs/project/.git
run 2 'runs/project is not removed: it holds the repository of a project' runs rm project --yes
run 2 'runs/a is named twice' runs rm a runs/a --yes
(cd runs/a && "$trireme" runs rm "$tmp/runs/a" --yes) >out 2>err
grep -q 'is not removed: the working directory is in it' err || fail "the working directory was removed"
run 2 'there is no run gone' runs rm a gone --yes
for name in a a-link nothing far fake holds holds/inner project; do
    checks=$((checks + 1))
    [ -d runs/$name ] || fail "runs/$name is gone"
done
mkdir -p runs/a/ckpt/step-5 && echo precious >outside && ln -s ../../outside runs/a/linked
head -c 100000 /dev/zero >runs/a/ckpt/step-5/weights
head -c 500000 /dev/zero >runs/a/shared && ln runs/a/shared shared
run 0 'removed runs/a with' runs rm a b --yes
says 'which frees 1' # 112 KiB or so: not what has a second name
grep -q 'MiB\|[5-9][0-9][0-9].[0-9] KiB' out && fail "what another name keeps is not freed"
[ ! -e runs/a ] && [ ! -e runs/b ] && [ "$(cat outside)" = precious ] && [ -s shared ] || fail "not those two, or more than those"
[ -z "$(find . -name '.trireme*')" ] || fail "something is left: $(find . -name '.trireme*')"
if command -v script >/dev/null; then
    checks=$((checks + 1))
    echo n | timeout 60 script -qec "$trireme runs rm done" /dev/null >out
    [ -d runs/done ] && grep -q 'remove runs/done (done, 10 steps, .*)? \[y/N\]' out || fail "n removes, or nobody asked"
    echo y | timeout 60 script -qec "$trireme runs rm done" /dev/null >out
    [ ! -e runs/done ] || fail "y does not remove"
fi

echo "$checks checks, $failures failed"
[ $failures -eq 0 ]
