#!/usr/bin/env bash
# The page of `trireme watch`, and reports, in a browser (tests/helpers/browser.c): curves, comparing,
# the keyboard, 390 pixels, no error in the console and no request to anybody else; a run of four ranks
# that goes on, one of which is killed. With TRIREME_TEST_FULL=1 a server that comes back, and a million
# steps while the page is open. Arguments: the build directory. Run from the root of the repository.
set -u
build=${1:-build}
trireme=$(cd "$build" && pwd)/trireme
browser=$(cd "$build" && pwd)/tests/helpers/browser
chromium=$(command -v chromium || command -v chromium-browser || command -v chromium-headless || command -v google-chrome)
[ -n "$chromium" ] || {
    echo "skipped: there is no chromium"
    exit 77
}
root=$PWD
tmp=$(mktemp -d /tmp/trireme-page-XXXXXX)
failures=0 checks=0
watch_pid='' run_pid='' browser_pid=''
finish() {
    for pid in $watch_pid $run_pid $browser_pid; do kill -TERM "$pid" 2>/dev/null; done
    for pid in $watch_pid $run_pid $browser_pid; do wait "$pid" 2>/dev/null; done
    rm -rf "$tmp"
}
trap finish EXIT
trap 'exit 1' TERM INT
cd "$tmp" || exit 1
mkdir runs

fail() {
    failures=$((failures + 1))
    echo "FAILED: $*"
}

train() { # NAME ARGS...: a run that is over in a second
    local name=$1
    shift
    "$trireme" train "$root/recipes/tiny.yaml" --set run.dir="runs/$name" --set run.device=cpu --set run.threads=1 \
        --set train.steps=40 --set train.eval_every=10 --set run.save=false --quiet "$@" >"$name.out" 2>&1 ||
        fail "train $name: $(tail -n 3 "$name.out")"
}

serve() { # [PORT]: sets url and port
    : >watch.out
    "$trireme" watch runs --port "${1:-0}" >watch.out 2>watch.err 5>&- 6<&- &
    watch_pid=$!
    local _
    for _ in $(seq 600); do
        url=$(sed -n 's|^\(http://[^ ]*\).*|\1|p' watch.out | head -n 1)
        [ -z "$url" ] || break
        kill -0 $watch_pid 2>/dev/null || break
        sleep 0.05
    done
    port=${url%/} port=${port##*:}
    [ -n "$url" ] || fail "watch says no address: $(cat watch.out watch.err)"
}
end_server() {
    kill -TERM $watch_pid
    wait $watch_pid 2>/dev/null
    watch_pid=
}

# ---- the browser, command by command ----

start_browser() {
    mkfifo to from
    "$browser" "$chromium" <to >from 2>browser.err &
    browser_pid=$!
    exec 5>to 6<from
    broken=
}

# b WHAT COMMAND...: the command succeeds; `answer` is what it printed.
b() {
    local what=$1 line
    shift
    answer=
    [ -z "$broken" ] || return 1
    checks=$((checks + 1))
    printf '%s\nsay done.\n' "$*" >&5
    while IFS= read -r -t 180 line <&6; do
        case $line in
        done.) return 0 ;;
        FAILED:*)
            fail "$what: ${line#FAILED: }"
            cat <&6
            broken=1
            return 1
            ;;
        esac
        answer=$line
    done
    fail "$what: the browser said nothing more ($*)"
    broken=1
    return 1
}

# Curves of so many runs are drawn in the chart of the loss.
curves() { echo "wait T.curves.charts.has('loss') && T.curves.charts.get('loss').series().length === $1"; }
# Something of the chart of the loss has the colour of the first run: pixels, not promises.
painted="wait (() => { const c = T.curves.charts.get('loss').canvas.element, s = T.runColour(0);
 const p = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;
 const want = [1, 3, 5].map((i) => parseInt(s.slice(i, i + 2), 16)); let n = 0;
 for (let i = 0; i < p.length; i += 4) if (Math.abs(p[i] - want[0]) + Math.abs(p[i + 1] - want[1]) + Math.abs(p[i + 2] - want[2]) < 30) n++;
 return n > 50; })()"
painted=${painted//$'\n'/}

# ---- finished runs ----

finished() {
    b "the page opens" open "$url"
    b "the runs are listed" "wait document.querySelectorAll('table.runs tbody tr').length === 3"
    b "a curve appears" "$(curves 1)"
    b "a curve is painted" "$painted"
    b "it is live" "wait T.live.state === 'live'"
    b "the title names the run" "check document.title.includes('Trireme') && document.title !== 'Trireme'"
    b "one run alone" "eval [...document.querySelectorAll('button.name')].find((e) => e.textContent === 'base').click()"
    b "another beside it" "eval [...document.querySelectorAll('table.runs tbody tr')].find((e) => e.textContent.includes('fast')).querySelector('input').click()"
    b "both have curves" "$(curves 2)"
    b "the settings differ" "wait /optim\\.lr\\s*0\\.003\\s*0\\.006/.test(document.querySelector('#differ').textContent)"
    b "losses at equal steps" "wait document.querySelector('#differ').textContent.includes('Loss at equal steps')"
    b "no other setting differs" "check !document.querySelector('#differ').textContent.includes('model.dim')"
    b "a click selects" "click #focus-bar button:nth-of-type(2)"
    b "the other run's details" "check T.nameOf(T.state.focus) === 'fast'"
    b "a stretch is dragged" "drag .chart canvas 0.3 0.5 0.7 0.5"
    b "it is zoomed" "wait T.state.from > 5 && T.state.to < 35 && T.store.of(T.state.selected[0], 'loss').points.every((p) => p[0] >= T.state.from && p[0] <= T.state.to)"
    b "all of it again" "click #curves-tools .group button:last-child"
    b "nothing is zoomed" "wait T.state.from === null"
    b "over tokens" "eval (() => { const s = document.querySelector('#curves-tools select'); s.value = 'tokens'; s.dispatchEvent(new Event('change')); })()"
    b "tokens are there" "wait T.curves.charts.get('loss').series().length === 2 && T.xRange()[1] > 20000"
    b "the address keeps it" "check location.hash.includes('x=tokens')"
    b "no error in the part finished" no-errors
    b "nobody else was asked" only "http://127.0.0.1:$port/"
}

# Everything that the mouse did, by keys alone.
keyboard() {
    b "the page opens again" open "$url"
    b "a curve appears" "$(curves 1)"
    b "the first key" key Tab
    b "it is the link to the curves" "check document.activeElement.classList.contains('skip') && document.activeElement.getBoundingClientRect().top >= 0"
    b "on to a tick" "eval (async () => { window.want = [...document.querySelectorAll('table.runs input')].find((e) => !e.checked); window.presses = 0; })()"
    tabs_to "a tick" "document.activeElement === window.want"
    b "it is ticked" key Space
    b "two curves" "$(curves 2)"
    b "the focus stayed" "check document.activeElement === window.want && T.state.selected.length === 2"
    tabs_to "a chart" "document.activeElement.tagName === 'CANVAS'"
    b "the outline is seen" "check getComputedStyle(document.activeElement).outlineStyle !== 'none'"
    b "values are read" key ArrowLeft 3
    b "they are told" "check /steps: .*, /.test(document.querySelector('#announce').textContent)"
    b "zoom" key + 2
    b "it is zoomed" "check T.state.from !== null && T.state.to - T.state.from < 12"
    b "all" key 0
    b "all is there" "check T.state.from === null"
    b "labels" "wait document.activeElement.getAttribute('role') === 'img' && /over steps.*at 40/.test(document.activeElement.getAttribute('aria-label'))"
    b "every control has a name" "check [...document.querySelectorAll('button, input, select, canvas, a')].every((e) => (e.textContent + (e.getAttribute('aria-label') || '') + (e.labels && e.labels[0] ? e.labels[0].textContent : '')).trim())"
    b "no error in the part keyboard" no-errors
}
tabs_to() { # WHAT CONDITION: by Tab alone, in at most 150 presses
    local _
    for _ in $(seq 150); do
        b "$1" key Tab || return
        b "$1" "eval Boolean($2)" || return
        [ "$answer" != true ] || return 0
    done
    fail "$1 is not reached by Tab"
}

phone() {
    b "a phone" size 390 844 2 phone
    b "the page on a phone" open "$url"
    b "a curve appears" "$(curves 1)"
    b "memory is there" "wait document.querySelector('#memory') && !document.querySelector('#memory').hidden"
    b "nothing scrolls sideways" "check document.documentElement.scrollWidth <= 390 && [...document.querySelectorAll('main > *, .panel')].every((e) => e.getBoundingClientRect().right <= 390.5)"
    b "dark" media dark
    b "it is dark" "wait document.documentElement.dataset.theme === 'dark'"
    b "the button" "click #theme"
    b "light at will" "check document.documentElement.dataset.theme === 'light'"
    b "back" media light
    b "the button again" "eval (T.theme.choice = 'auto', T.keep('theme', 'auto'), T.theme.apply())"
    b "a screen again" size 1300 900 1
    b "no error in the part phone" no-errors
}

reports() {
    checks=$((checks + 1))
    "$trireme" report runs/base runs/fast -o r.html >report.out 2>&1 || fail "report: $(cat report.out)"
    grep -q '^written to r.html, ' report.out || fail "report says $(cat report.out)"
    "$trireme" report runs/base -o r.html >report.out 2>&1 || fail "a report does not replace a report: $(cat report.out)"
    echo mine >mine.html
    "$trireme" report runs/base --output mine.html >report.out 2>&1
    [ $? -eq 2 ] || fail "a file that is no report was replaced"
    [ "$(cat mine.html)" = mine ] || fail "a file that is no report was changed"
    # What a model or a person wrote is text, whatever it looks like.
    "$trireme" report runs/base runs/fast runs/odd -o r.html >report.out 2>&1 || fail "report: $(cat report.out)"
    [ "$(grep -o '</script' r.html | wc -l)" -eq "$(($(grep -o '<script' r.html | wc -l)))" ] || fail "the documents end an element"
    b "the report opens" open "file://$tmp/r.html"
    b "three curves" "$(curves 3)"
    b "they are painted" "$painted"
    b "text is text" "wait document.querySelector('#story').textContent.includes('</script><script>window.bad = 1</script>') || (T.setFocus(T.state.runs.find((r) => r.run.includes('odd')).id), false)"
    b "and never a script" "check window.bad === undefined"
    b "hours" "eval (() => { const s = document.querySelector('#curves-tools select'); s.value = 'hours'; s.dispatchEvent(new Event('change')); })()"
    b "hours are there" "wait T.curves.charts.get('loss').series().length === 3 && T.xRange()[1] < 1"
    b "zoom" "eval T.zoomBy(0.5)"
    b "zoomed" "wait T.store.of(T.state.selected[0], 'loss').points.length < 40"
    b "no error in the part reports" no-errors
    b "no request" only "file://$tmp/r.html"
}

# ---- a run that goes on ----

# Processes of ranks: those whose parent is the launcher.
ranks_of() {
    local status
    for status in /proc/[0-9]*/stat; do
        awk -v parent="$1" '{ sub(/.*\) /, ""); if ($2 == parent) exit 0; exit 1 }' "$status" 2>/dev/null && basename "$(dirname "$status")"
    done
}

live() {
    local victims step
    (exec "$trireme" train "$root/recipes/tiny.yaml" --set run.dir=runs/live --set run.device=cpu --set run.threads=1 \
        --set train.steps=100000 --set layout.dp=2 --set layout.pp=2 --set layout.microbatches=2 \
        --set run.pace=F=4,B=6,U=2 --set run.save=false --quiet) >live.out 2>&1 5>&- 6<&- &
    run_pid=$!
    b "the page opens" open "$url"
    b "the run appears" "wait T.state.runs.some((r) => r.run.includes('live') && r.state === 'running')"
    b "it is selected" "eval T.select([T.state.runs.find((r) => r.run.includes('live')).id])"
    b "its curve appears" "$(curves 1)"
    b "it is painted" "$painted"
    b "where it is" "eval T.store.of(T.state.focus, 'loss').last"
    step=${answer:-0}
    b "it goes on by itself" "wait T.store.of(T.state.focus, 'loss').last > $step + 20"
    b "four ranks" "wait document.querySelectorAll('.tile').length === 4"
    b "each says where it is" "wait [...document.querySelectorAll('.tile .where')].every((e) => /step \\d+ · .+/.test(e.textContent))"
    b "the ranks go on" "eval window.before = document.querySelector('.tile .where').textContent"
    b "their steps change" "wait document.querySelector('.tile .where').textContent !== window.before"
    b "none is dead" "check document.querySelectorAll('.tile.dead').length === 0"
    [ -z "${SHOTS:-}" ] || b "picture" shot "$SHOTS/live.png"
    [ -z "$broken" ] || return
    mapfile -t victims < <(ranks_of $run_pid)
    [ ${#victims[@]} -eq 4 ] || fail "there are ${#victims[@]} processes of ranks, not 4"
    kill -KILL "${victims[2]}"
    b "one rank is dead" "wait document.querySelectorAll('.tile.dead').length === 1"
    b "it is red" "wait (() => { const e = document.querySelector('.tile.dead'), probe = document.createElement('i'); document.body.append(probe); probe.style.color = 'var(--bad)'; return getComputedStyle(e).borderTopColor === getComputedStyle(probe).color; })()"
    b "it names the signal" "check document.querySelector('.tile.dead').textContent.includes('SIGKILL')"
    b "and the instruction" "check /step \\d+ · .*\\S/.test(document.querySelector('.tile.dead .where').textContent)"
    b "words say so, too" "check /Rank \\d is dead \\(SIGKILL\\)/.test(document.querySelector('#ranks-alarm').textContent)"
    b "the event comes" "wait /failed[^]*SIGKILL/.test(document.querySelector('#story').textContent)"
    b "the run has failed" "wait T.runOf(T.state.focus).state === 'failed'"
    [ -z "${SHOTS:-}" ] || b "picture" shot "$SHOTS/dead.png"
    b "no error in the part live" no-errors
    wait $run_pid 2>/dev/null
    run_pid=
}

# The server ends and comes back: the page says so, and goes on.
lost() {
    b "the page is live" "wait T.live.state === 'live'"
    end_server
    b "it says that it is alone" "wait !document.querySelector('#trouble').hidden && /trying again/.test(document.querySelector('#trouble').textContent)"
    serve "$port"
    b "it finds the server again" "wait T.live.state === 'live' && document.querySelector('#trouble').hidden"
    b "without events" "eval (delete window.EventSource, window.before = T.live.heard, T.live.open())"
    b "it asks" "wait T.live.state === 'asking'"
    lines 41 60 >>runs/odd/metrics.jsonl
    b "the run" "eval T.select([T.state.runs.find((r) => r.run.includes('odd')).id])"
    b "and finds what is new" "wait T.runOf(T.state.focus).step === 60 && T.store.of(T.state.focus, 'loss').last === 60"
    b "without an event" "check T.live.heard === window.before"
}

# A run that somebody else writes, a thousand lines at a time, while the page is open.
million() {
    local before after step
    mkdir runs/made
    cp runs/base/config.yaml runs/made/
    head -n 1 runs/base/events.jsonl >runs/made/events.jsonl
    lines 1 1000 >runs/made/metrics.jsonl
    b "the page opens" open "$url"
    b "the run appears" "wait T.state.runs.some((r) => r.run.includes('made'))"
    b "it is selected" "eval T.select([T.state.runs.find((r) => r.run.includes('made')).id])"
    b "its curve appears" "$(curves 1)"
    b "its stream is open" "wait T.live.source && T.live.source.readyState === 1 && T.live.source.url.includes(T.state.focus)"
    # What comes while the server begins to look is no event; somebody who writes goes on.
    for step in $(seq 1001 1400); do
        lines "$step" "$step" >>runs/made/metrics.jsonl
        b "the first line" "eval T.store.of(T.state.focus, 'loss').last > 1000"
        [ "$answer" = false ] || break
        sleep 0.1
    done
    lines $((step + 1)) 20000 >>runs/made/metrics.jsonl
    b "the first come" "wait T.store.of(T.state.focus, 'loss').last >= 20000"
    b "memory" heap
    before=${answer:-0}
    [ -z "$broken" ] || return
    lines 20001 1000000 >>runs/made/metrics.jsonl 5>&- 6<&- &
    run_pid=$!
    b "a million steps" "wait 600 T.store.of(T.state.focus, 'loss').last >= 1000000"
    wait $run_pid
    run_pid=
    b "memory" heap
    after=${answer:-0}
    echo "  heap of the page: $before bytes after 20,000 steps, $after after a million"
    [ "$after" -lt $((before + 8000000)) ] || fail "the page's memory grew from $before to $after bytes"
    # The server tells some of the lines of a run that is so fast; here is each of another million.
    b "each of a million lines" "eval (() => { const id = T.state.focus, from = T.runOf(id).step; for (let s = 1; s <= 1e6; s += 100) T.live.take.step({ data: JSON.stringify(Array.from({ length: 100 }, (_, i) => ({ id, step: from + s + i, loss: 3 + Math.random(), grad_norm: Math.random(), lr: 0.003, tokens: (from + s + i) * 512, step_ms: 1.5, tokens_per_s: 3e5, eval_loss: i ? undefined : 3 }))) }); return T.store.of(id, 'loss').last; })()"
    [ "$answer" = 2000000 ] || fail "the last step is $answer"
    b "memory" heap
    echo "  heap of the page: $answer bytes after two million"
    [ "${answer:-0}" -lt $((before + 8000000)) ] || fail "the page's memory grew from $before to $answer bytes"
    b "few points" "check [...T.store.curves.values()].every((c) => c.points.length > 100 && c.points.length <= 800)"
    b "it is quick" "check (() => { const t = performance.now(); for (const c of T.curves.charts.values()) c.canvas.paint(); return performance.now() - t < 300; })()"
    b "no error in the part million" no-errors
}
lines() { # FROM TO
    awk -v from="$1" -v to="$2" 'BEGIN { srand(from); for (s = from; s <= to; s++)
        printf "{\"step\":%d,\"loss\":%.6f,\"grad_norm\":%.5f,\"lr\":0.003,\"tokens\":%d,\"step_ms\":1.5,\"tokens_per_s\":%.1f,\"mem_peak_bytes\":16551936,\"time\":%.3f,\"version\":2}\n",
            s, 3 + 3 / (1 + s / 1000) + 0.1 * rand(), 0.5 + rand(), s * 512, 300000 + 20000 * rand(), 1790000000 + s * 0.0015 }'
}

# ---- all of it ----

train base
train fast --set optim.lr=0.006
train odd --set run.seed=2
printf '%s\n' '{"time":"2026-01-31T12:00:00Z","event":"note","reason":"odd </script><script>window.bad = 1</script> \u2028","version":2}' >>runs/odd/events.jsonl
serve
start_browser
finished
keyboard
phone
reports
live
if [ -n "${TRIREME_TEST_FULL:-}" ]; then
    lost
    million
fi
exec 5>&-
wait "$browser_pid"
browser_pid=
end_server
[ $failures -eq 0 ] || {
    echo "$failures of $checks checks failed"
    exit 1
}
echo "$checks checks passed"
