#!/usr/bin/env bash
# The pages of `trireme view` in a browser (tests/helpers/browser.c): every tab, stepping by keyboard, wrong
# input, a program of 20,000 instructions, 390 pixels, dark and light, nothing from outside; and the server's
# answers. Argument: the build directory. TRIREME_VIEW_SHOTS=DIR keeps pictures. Run from the root of the
# repository.
set -u
build=${1:-build}
trireme=$build/trireme browser=$build/tests/helpers/browser
shots=${TRIREME_VIEW_SHOTS:-}
tmp=$(mktemp -d "${TMPDIR:-/tmp}/trireme-view-XXXXXX")
view_pid=''
trap '[ -z "$view_pid" ] || kill -TERM "$view_pid" 2>/dev/null; wait 2>/dev/null; rm -rf "$tmp"' EXIT
failures=0 checks=0

fail() {
    failures=$((failures + 1))
    echo "FAILED: $*"
}

# serve VERB ARGS...: trireme VERB in the background; its address is in $url.
serve() {
    rm -f "$tmp/out"
    "$trireme" "$@" --port 0 >"$tmp/out" 2>"$tmp/err" </dev/null &
    view_pid=$!
    for _ in $(seq 600); do
        url=$(head -n 1 "$tmp/out" 2>/dev/null)
        [ -n "$url" ] && return
        kill -0 "$view_pid" 2>/dev/null || break
        sleep 0.1
    done
    cat "$tmp/err"
    echo "FAILED: trireme $* does not serve"
    exit 1
}

# stop: it ends by SIGTERM, with exit code 0.
stop() {
    checks=$((checks + 1))
    kill -TERM "$view_pid"
    wait "$view_pid" || fail "trireme ended with $?"
    view_pid=''
}

# browse NAME: a script of the browser from standard input.
browse() {
    checks=$((checks + 1))
    if ! "$browser" "$chromium" >"$tmp/browser" 2>&1; then
        fail "$1"
        tail -n 4 "$tmp/browser"
    fi
}

# shot NAME: the command that keeps a picture, where pictures are wanted.
shot() {
    [ -z "$shots" ] || echo "shot $shots/$1${2:+ $2}"
}

# The server's own part needs no browser.
serve view recipes/tiny.yaml
if command -v curl >/dev/null; then
    checks=$((checks + 4))
    same=$(curl -s "${url}api/view/schedule?name=zb-v&p=4&m=8" | cmp - <("$trireme" view --print '/api/view/schedule?name=zb-v&p=4&m=8') 2>&1) || fail "a document that is served is another one than --print prints: $same"
    [ "$(curl -s -o /dev/null -w '%{http_code}' "${url}api/view/schedule?p=99")" = 400 ] || fail "p=99 is not 400"
    [ "$(curl -s -o /dev/null -w '%{http_code}' "${url}api/view/none")" = 404 ] || fail "an address that is none is not 404"
    [ "$(curl -s -o /dev/null -w '%{http_code}' -X POST -d x "${url}api/view/mesh")" != 200 ] || fail "a request with a body is answered"
else
    echo "skipped: answers without a browser (no curl)"
fi

chromium=$(command -v chromium || command -v chromium-browser || command -v chromium-headless || command -v google-chrome)
if [ -z "$chromium" ]; then
    stop
    [ $failures -eq 0 ] || exit 1
    echo "skipped: there is no Chromium"
    exit 77
fi

# A picture has changed when the bytes of its canvas have: as it is on the screen, and as it is drawn at once.
screen="T.view.schedule.picture.canvas.toDataURL()"
picture="(T.view.schedule.picture.now(), $screen)"
# A few pictures of the screen later, nothing waits to be drawn.
settled='new Promise((done) => { let n = 0; const next = () => (++n > 5 ? done(n) : requestAnimationFrame(next)); next(); })'

browse schedules <<EOF
size 1300 1600
open ${url}#schedule?name=zb-v&p=4&m=8&send=0.2
wait !!T.view.schedule.document
no-errors
only $url
check document.querySelectorAll('[role=tab]').length === 4
check document.getElementById('runs').hidden
check T.view.schedule.stepper.at === 192
check document.querySelector('.v-tiles').textContent.includes('bubble')
key Home
check T.view.schedule.stepper.at === 0
eval ($picture, $settled)
eval (window.before = $picture, 0)
key ArrowRight 60
check T.view.schedule.stepper.at === 60
wait $screen !== window.before
check /rank \d: .* of micro-batch \d/.test(document.querySelector('#panel-schedule .told').textContent)
check location.hash.includes('at=60')
$(shot view-schedule.png '#panel-schedule')
eval $settled
eval (window.middle = $picture, 0)
key ArrowLeft 60
check $picture === window.before
key End
wait $screen !== window.middle
eval (document.querySelector('[data-key=p]').value = 6, document.querySelector('[data-key=p]').dispatchEvent(new Event('change')), 0)
wait T.view.schedule.document.num_ranks === 6
check T.view.schedule.actions.length === 6 * 2 * 8 * 3
eval (document.querySelector('[data-key=p]').value = 65, document.querySelector('[data-key=p]').dispatchEvent(new Event('change')), 0)
wait document.getElementById('trouble').textContent.includes('from 1 to 64')
eval (document.querySelector('textarea').value = '0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1', document.querySelector('.own').open = true, 0)
click .own button
wait T.view.schedule.document.name === 'csv' && T.view.schedule.document.num_ranks === 2
check document.getElementById('trouble').hidden
EOF

browse 'placements, collectives' <<EOF
size 1300 1300
open ${url}#mesh?dp=2&tp=2&zero=2&value=h.0.attn.c_proj.product
wait document.querySelectorAll('.card').length === 4
check document.querySelector('#panel-mesh .told').textContent.includes('a sum of 2 terms')
check new Set([...document.querySelectorAll('.letter')].map((l) => l.textContent)).size === 4
$(shot view-mesh.png '#panel-mesh .side')
eval (document.querySelector('.values').focus(), 0)
key ArrowDown
wait T.view.values.mesh.value !== 'h.0.attn.c_proj.product' && !document.querySelector('#panel-mesh .told').textContent.includes('2 terms')
eval (document.querySelector('#panel-mesh summary').click(), 0)
check document.querySelectorAll('#panel-mesh table tbody tr').length === 52
no-errors
only $url
open ${url}?#collective?operation=all_reduce&algorithm=ring&ranks=8&at=3
wait !!T.view.collective.document
wait document.querySelectorAll('.arrow').length === 8
check document.querySelectorAll('.transfers li').length === 8
$(shot view-collective.png '#panel-collective')
key ArrowRight
check T.view.collective.stepper.at === 4
check !T.view.collective.state.complete()
key End
check T.view.collective.state.complete()
check document.querySelector('#panel-collective .told').textContent.includes('Every rank has what')
eval (document.querySelector('[data-key=operation]').value = 'all_to_all', document.querySelector('[data-key=operation]').dispatchEvent(new Event('change')), 0)
wait T.view.collective.document.operation === 'all_to_all'
eval (document.activeElement.blur(), 0)
key End
check T.view.collective.state.complete()
no-errors
EOF

browse 'a phone' <<EOF
size 390 800 2 phone
media dark
open ${url}#program?dp=2&tp=2
wait !!T.view.program.document
check document.documentElement.dataset.theme === 'dark'
check document.documentElement.scrollWidth <= 390
eval (document.getElementById('tab-program').focus(), 0)
key ArrowRight
wait !!T.view.schedule.document
check T.view.now.name === 'schedule'
wait document.querySelector('#panel-schedule canvas').width > 0
check document.documentElement.scrollWidth <= 390
$(shot view-phone.png)
key ArrowRight
wait document.querySelectorAll('.card').length > 0
check document.documentElement.scrollWidth <= 390
key ArrowRight
wait document.querySelectorAll('.dot').length === 8
check document.documentElement.scrollWidth <= 390
check [...document.querySelectorAll('input, select, textarea, button')].every((e) => e.textContent || e.getAttribute('aria-label') || e.closest('label'))
no-errors
only $url
EOF
stop

# trireme watch has the pages, too, beside runs.
serve watch "$tmp"
browse 'beside runs' <<EOF
open ${url}view#program?recipe=tiny&dp=2
wait !!T.view.program.document
check T.view.program.document.num_ranks === 2
check !document.getElementById('runs').hidden
no-errors
only $url
EOF
stop

serve view recipes/tiny.yaml --set model.num_layers=400
browse 'a large program' <<EOF
size 1300 1000
open ${url}#program
wait !!T.view.program.document
check T.view.program.instructions.length > 20000
check document.querySelectorAll('.row').length < 100
eval (document.querySelector('.list').focus(), 0)
key ArrowDown 3
check document.querySelector('.detail h2').textContent.startsWith(String(T.view.program.chosen.number))
key /
type layernorm h.399.
wait document.querySelectorAll('.row.level3').length > 0 && [...document.querySelectorAll('.row.level3')].every((r) => r.textContent.includes('norm'))
eval (document.querySelector('.row.level3').click(), window.found = T.view.program.chosen.number, 0)
click .detail .plain
check T.view.program.chosen.number !== window.found
check document.querySelectorAll('.row').length < 100
eval (T.view.program.search.value = '', T.view.program.foldAll(1), 0)
check document.querySelectorAll('.row').length === 3
no-errors
only $url
EOF
stop

if [ $failures -gt 0 ]; then
    echo "$failures of $checks checks failed"
    exit 1
fi
echo "all $checks checks passed"
