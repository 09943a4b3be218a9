#!/usr/bin/env bash
# Faults of every kind, one after the other, for an hour: soak_composed.sh BUILD [SECONDS [SEED]].
#
# A history is a training run that is disturbed and resumed until it reaches its end. Every round of
# it starts the run, does something to it at a random moment, and looks at what is left:
#   1. no process of it lives on, and it ended with a code that the fault explains, never by a
#      signal of its own making;
#   2. the newest checkpoint is not older than before, and all of them verify;
#   3. nothing was set aside as damaged that is whole;
#   4. metrics.jsonl has every step once and in order (with lines missing only where the disk was
#      full or failed), and every line of it and of events.jsonl is an object.
# At its end the losses and the weights are those of a run that nobody disturbed: to the last bit
# where the layout stayed the same, the losses to 1e-5 where each round had another.
#
# Links are cut and slowed between network namespaces, and disks filled on a small file system; both
# need root, and are left out by name without. Everything that is made is taken away at the end.
# Environment: SOAK_SECONDS (3600), SOAK_SEED (any; printed), SOAK_FAULTS ("kill_rank full_disk ...").
set -u
build=$(cd "$1" && pwd) || exit 2
seconds=${2:-${SOAK_SECONDS:-3600}}
seed=${3:-${SOAK_SEED:-$((RANDOM * 32768 + RANDOM))}}
cd "$(dirname "$0")/.." || exit 2
trireme=$build/trireme
helpers=$build/tests/helpers
steps=240
deadline_s=5
work=$(mktemp -d "${TMPDIR:-/tmp}/trireme-composed-XXXXXX")
tag=tc$$
export SOAK_MARK=$tag # by which processes of ours are known
unset RANK WORLD_SIZE LOCAL_RANK MASTER_ADDR MASTER_PORT TRIREME_TOKEN
state=$seed
disk='' relay='' run='' pids=()
declare -A count

# ---- processes ----

ours() { # pids of the program that are alive; the marks of others are not ours
    local entry pid
    for entry in /proc/[0-9]*; do
        pid=${entry#/proc/}
        [ "$(cat "$entry/comm" 2>/dev/null)" = trireme ] || continue
        grep -qz "^SOAK_MARK=$tag\$" "$entry/environ" 2>/dev/null && echo "$pid"
    done
}
clean() {
    local pid name
    for pid in $(ours); do kill -KILL "$pid" 2>/dev/null; done
    [ -n "$relay" ] && kill -KILL "$relay" 2>/dev/null
    wait 2>/dev/null
    for name in a b r; do ip netns del "$tag$name" 2>/dev/null; done
    [ -n "$disk" ] && umount "$disk" 2>/dev/null
    rm -rf "$work"
}
trap clean EXIT
trap 'exit 130' INT TERM

fail() {
    echo "FAILED: $1 (history $history, round $round: $layout, $fault; seed $seed)"
    tail -n 15 "$work"/out.* 2>/dev/null | sed 's/^/    /'
    ls -la "$run/ckpt" 2>/dev/null | sed 's/^/    /'
    tail -n 5 "$run/events.jsonl" 2>/dev/null | sed 's/^/    /'
    if [ -n "${SOAK_KEEP:-}" ]; then
        cp -r "$run" "$SOAK_KEEP" && cp "$work"/out.* "$SOAK_KEEP/" && echo "the run is in $SOAK_KEEP"
    fi
    exit 1
}

# Numbers that a seed gives again; into variables, since a subshell would not move on.
draw() { # below
    state=$(((state * 6364136223846793005 + 1442695040888963407) & 0x7fffffffffffffff))
    drawn=$(((state >> 33) % $1))
}
pick() {
    local list=("$@")
    draw $#
    picked=${list[drawn]}
}
pause_ms() { sleep "$(printf '%d.%03d' $(($1 / 1000)) $(($1 % 1000)))"; }

# ---- what there is to disturb with ----

faults=(kill_rank kill_launcher kill_all stop_short stop_long term int term_in_save kill_in_save)
if [ -f "$helpers/libdisk-shim.so" ]; then
    faults+=(slow_disk failing_sync)
else
    echo "skipped: slow disks ($helpers/libdisk-shim.so is missing)"
fi
if [ -f "$helpers/libfault-shim.so" ]; then
    faults+=(failing_disk)
else
    echo "skipped: failing reads and writes ($helpers/libfault-shim.so is missing)"
fi
make_disk() {
    [ "$(id -u)" -eq 0 ] && mkdir "$work/disk" && mount -t tmpfs -o size=24m "$tag" "$work/disk" 2>/dev/null &&
        disk=$work/disk
}
if make_disk; then
    faults+=(full_disk)
else
    echo "skipped: full disks (no small file system can be mounted here)"
fi
make_link() { # hosts a and b, and between them a relay that can be slow or stopped
    local n
    [ -x "$helpers/packet_relay" ] && ip netns add "${tag}a" 2>/dev/null || return 1
    ip netns add "${tag}b" && ip netns add "${tag}r" || return 1
    for n in a b; do
        ip link add "$tag$n" netns "$tag$n" type veth peer name "p$tag$n" netns "${tag}r" || return 1
        ip -n "$tag$n" addr add "10.213.9.$([ $n = a ] && echo 1 || echo 2)/24" dev "$tag$n"
        ip -n "$tag$n" link set "$tag$n" up
        ip -n "$tag$n" link set lo up
        ip -n "${tag}r" link set "p$tag$n" up
    done
}
hosts=no
if make_link; then
    hosts=yes
    faults+=(cut_short cut_long slow_link)
else
    echo "skipped: cut and slow links (no network namespaces here)"
fi
[ -n "${SOAK_FAULTS:-}" ] && read -r -a faults <<<"$SOAK_FAULTS"

start_relay() { # delay in ms, loss in percent
    ip netns exec "${tag}r" "$helpers/packet_relay" "p${tag}a" "p${tag}b" "$1" "$2" >"$work/relay" 2>&1 &
    relay=$!
    for _ in $(seq 100); do
        grep -q ready "$work/relay" && return
        sleep 0.05
    done
    fail "the relay did not start: $(cat "$work/relay")"
}
stop_relay() {
    [ -n "$relay" ] || return
    kill -KILL "$relay" 2>/dev/null
    wait "$relay" 2>/dev/null
    relay=
}

# ---- runs ----

layouts=("layout.dp=1" "layout.dp=2" "layout.dp=2 layout.zero=2" "layout.tp=2"
    "layout.pp=2 layout.microbatches=2")

arguments() { # DIR [SETTING ...] into args
    local dir=$1 setting
    shift
    args=(train recipes/tiny.yaml)
    for setting in model.num_layers=2 model.dim=32 data.seq_len=32 train.steps=$steps \
        run.device=cpu run.save=false run.threads=1 ckpt.every=8 ckpt.keep_last=3 \
        run.deadline_s=$deadline_s run.dir="$dir" "$@"; do
        args+=(--set "$setting")
    done
    case "$*" in *layout.dp=2*) args+=(--set run.collective=ring) ;; esac # the same bits over any transport
}
reference() { # LAYOUT: sets expected to the directory of the undisturbed run
    expected="$work/ref$(echo "$1" | tr ' =.' '___')"
    [ -d "$expected" ] && return
    arguments "$expected" $1
    "$trireme" "${args[@]}" >"$work/out.0" 2>&1 </dev/null || fail "the undisturbed run"
}
begin() { # SETTING ...: sets pids, the launcher first, or one of each host
    local i
    arguments "$run" "$@" run.resume=auto
    rm -f "$work"/out.*
    if [ "$far" = no ]; then
        env --default-signal=INT "${preload[@]}" "$trireme" "${args[@]}" >"$work/out.0" 2>&1 </dev/null &
        pids=($!)
        return
    fi
    pids=()
    for i in 0 1; do
        env --default-signal=INT RANK=$i WORLD_SIZE=2 MASTER_ADDR=10.213.9.1 MASTER_PORT=29500 \
            TRIREME_TOKEN="$tag" ip netns exec "$tag$([ $i = 0 ] && echo a || echo b)" \
            "$trireme" "${args[@]}" --set run.transport=tcp >"$work/out.$i" 2>&1 </dev/null &
        pids+=($!)
    done
}
alive() { kill -0 "${pids[0]}" 2>/dev/null; }
ranks_of() {
    if [ "$far" = yes ]; then
        echo "${pids[@]}"
    else
        cat "/proc/${pids[0]}/task/${pids[0]}/children" 2>/dev/null
    fi
}
newest() { ls "$run/ckpt" 2>/dev/null | sed -n 's/^step-\([0-9]*\)$/\1/p' | sort -n | tail -n 1; }
saving() { compgen -G "$run/ckpt/.step-*.tmp" >/dev/null; }
until_saving() {
    for _ in $(seq 400); do
        saving && return
        alive || return
        sleep 0.003
    done
}

# ---- faults ----

# Sets preload before the run begins, for faults that are part of its environment.
prepare() {
    preload=()
    case $fault in
    slow_disk)
        pick rank-0.safetensors rank-1.safetensors manifest.json /ckpt
        preload=(LD_PRELOAD="$helpers/libdisk-shim.so" DISK_PATH="$picked")
        draw 5
        preload+=(DISK_PAUSE_MS=$((100 * (1 + drawn))))
        ;;
    failing_sync)
        pick rank-0.safetensors rank-1.safetensors /ckpt
        preload=(LD_PRELOAD="$helpers/libdisk-shim.so" DISK_PATH="$picked")
        pick 5 28
        preload+=(DISK_ERRNO="$picked")
        ;;
    failing_disk)
        draw 900
        preload=(LD_PRELOAD="$helpers/libfault-shim.so" FAULT_CLASS=io FAULT_AT=$((1 + drawn)))
        pick 1 1 3 20
        preload+=(FAULT_FOR="$picked")
        pick EIO ENOSPC short slow
        preload+=(FAULT_WITH="$picked")
        pick 0 1 2
        preload+=(FAULT_PROCESS="$picked")
        ;;
    esac
}

disturb() {
    local ranks victim
    read -r -a ranks <<<"$(ranks_of)"
    [ ${#ranks[@]} -gt 0 ] || ranks=("${pids[0]}")
    pick "${ranks[@]}"
    victim=$picked
    case $fault in
    kill_rank) kill -KILL "$victim" 2>/dev/null ;;
    kill_launcher) kill -KILL "${pids[0]}" 2>/dev/null ;;
    kill_all) kill -KILL "${pids[@]}" "${ranks[@]}" 2>/dev/null ;;
    kill_in_save)
        until_saving
        pick "${pids[0]}" "${ranks[@]}"
        kill -KILL "$picked" 2>/dev/null
        ;;
    stop_short | stop_long)
        kill -STOP "$victim" 2>/dev/null
        [ "$fault" = stop_short ] && draw 900 || drawn=$((deadline_s * 1000 + 2500))
        pause_ms $drawn
        kill -CONT "$victim" 2>/dev/null
        ;;
    term)
        pick "${pids[0]}" "$victim"
        kill -TERM "$picked" 2>/dev/null
        ;;
    int) kill -INT "${pids[0]}" 2>/dev/null ;;
    term_in_save)
        until_saving
        kill -TERM "${pids[0]}" 2>/dev/null
        ;;
    full_disk)
        head -c 30000000 /dev/zero >"$disk/filler" 2>/dev/null
        draw 1500
        pause_ms $drawn
        rm -f "$disk/filler"
        ;;
    cut_short | cut_long)
        kill -STOP "$relay"
        [ "$fault" = cut_short ] && draw 600 || drawn=$((deadline_s * 1000 + 4000))
        pause_ms $drawn
        kill -CONT "$relay" 2>/dev/null
        ;;
    esac
}

# The codes with which a round may end: 0 is always possible, since it may have been at its end.
expected_code() { # code
    case $fault in
    nothing | slow_disk | stop_short | cut_short | slow_link) return 1 ;; # these harm nothing
    stop_long | cut_long | full_disk | failing_sync) [ "$1" -eq 1 ] ;;
    failing_disk) [ "$1" -eq 1 ] || [ "$1" -eq 2 ] ;;
    kill_rank) [ "$1" -eq 1 ] || { [ "$far" = yes ] && [ "$1" -eq 137 ]; } ;;
    kill_launcher | kill_all | kill_in_save) [ "$1" -eq 137 ] || [ "$1" -eq 1 ] ;;
    term | term_in_save) [ "$1" -eq 3 ] ;;
    int) [ "$1" -eq 130 ] || { [ "$far" = yes ] && [ "$1" -eq 3 ]; } ;;
    esac
}

# ---- what must hold after a round ----

steps_in() { sed -n 's/^{.*"step": *\([0-9]*\).*}$/\1/p' "$run/metrics.jsonl" 2>/dev/null; }
loss_lines() { sed -n 's/^{.*"step": *\([0-9]*\).*"loss": *\([^,}]*\).*}$/\1 \2/p' "$1/metrics.jsonl"; }

check_processes() {
    local left
    for _ in $(seq 100); do
        left=$(ours)
        [ -z "$left" ] && return
        sleep 0.1
    done
    fail "processes are left 10 s after the end: $left"
}
check_checkpoints() {
    local now dir
    now=$(newest)
    [ "${now:-0}" -ge "${last:-0}" ] || fail "step-$last was lost: step-${now:-none} is the newest"
    for dir in "$run"/ckpt/step-*; do
        [ -d "$dir" ] || continue
        if "$trireme" ckpt verify "$dir" >"$work/verify" 2>&1; then
            case $dir in *.damaged*) fail "$dir is whole, and was set aside" ;; esac
        else
            case $dir in *.damaged*) fail "$dir: nothing here damages bytes" ;; esac
            fail "$dir is not whole: $(cat "$work/verify")"
        fi
    done
}
check_records() {
    local file
    for file in metrics events; do # a half line at the end is whom a kill met while writing
        [ -f "$run/$file.jsonl" ] || continue
        [ -z "$(grep -v '^{.*}$' "$run/$file.jsonl" | head -n -1)" ] ||
            fail "$file.jsonl has a line in its middle that is no object: $(grep -vn '^{.*}$' "$run/$file.jsonl" | head -n 2)"
    done
    steps_in | awk -v gaps=$gaps '{ if ($1 <= last || (!gaps && $1 != last + 1)) { print $1 " after " last; exit 1 } last = $1 }' \
        >"$work/steps" || fail "metrics.jsonl: step $(cat "$work/steps")"
}
check_end() {
    local tolerance=0
    [ "$moving" = yes ] && tolerance=1e-5
    [ "$(newest)" -eq $steps ] || fail "the run ended, and its last checkpoint is step-$(newest)"
    [ $gaps = 1 ] || [ "$(steps_in | wc -l)" -eq $steps ] || fail "metrics.jsonl has $(steps_in | wc -l) steps"
    [ $gaps = 1 ] || grep '"event": *"end"' "$run/events.jsonl" | tail -n 1 | grep -q '"exit_code": *0' ||
        fail "the last event is not the end of the run"
    loss_lines "$expected" >"$work/x"
    loss_lines "$run" >"$work/y"
    awk -v t=$tolerance 'NR == FNR { want[$1] = $2; next }
        { d = $2 - want[$1]; if (d < 0) d = -d; if (!($1 in want) || d > t * want[$1]) { print $1 ": " $2 ", not " want[$1]; exit 1 } }' \
        "$work/x" "$work/y" >"$work/losses" || fail "the loss of step $(cat "$work/losses")"
    [ "$moving" = yes ] || "$trireme" ckpt diff "$expected/ckpt/step-$steps" "$run/ckpt/step-$steps" >"$work/diff" 2>&1 ||
        fail "the weights differ: $(head -n 3 "$work/diff")"
}

# ---- histories ----

play_round() { # sets code
    local extra=() i began=$SECONDS end
    last=$(newest)
    prepare
    draw 3
    [ "$far" = no ] && [ $drawn -eq 0 ] && extra=(run.restarts=3)
    if [ "$fault" = slow_link ]; then
        draw 18
        start_relay $((1 + drawn / 3)) $((drawn % 3))
    elif [ "$far" = yes ]; then
        start_relay 0 0
    fi
    begin $layout "${extra[@]}"
    draw 1800
    pause_ms $drawn
    late=
    if alive; then
        disturb
    elif [ ${#preload[@]} -eq 0 ]; then
        late=", had ended before"
    fi
    end=$((SECONDS + 120))
    while [ -n "$(jobs -pr | grep -vx "${relay:-0}")" ]; do
        [ $SECONDS -lt $end ] || fail "it is still there 120 s after the fault"
        sleep 0.05
    done
    code=0
    for i in "${!pids[@]}"; do
        wait "${pids[$i]}"
        end=$?
        [ $end -eq 0 ] || expected_code $end || fail "exit code $end"
        [ $end -gt $code ] && code=$end
    done
    stop_relay
    [ "$fault" = full_disk ] && rm -f "$disk/filler"
    case $fault in full_disk | failing_sync | failing_disk) gaps=1 ;; esac
    check_processes
    check_checkpoints
    check_records
    printf 'round %d, history %d: %-50s %-13s exit %3d, checkpoint %s, %d s%s%s\n' $round $history \
        "$layout$([ "$far" = yes ] && echo ", two hosts")$([ "$small" = yes ] && echo ", small disk")" "$fault" $code "$(newest)" $((SECONDS - began)) \
        "$([ ${#preload[@]} -gt 0 ] && echo " (${preload[*]:1})")" "$late"
    [ -n "$late" ] || count[$fault]=$((${count[$fault]:-0} + 1))
}
allowed() { # a fault, in this history
    case $1 in
    full_disk) [ "$small" = yes ] ;;
    cut_short | cut_long | slow_link) [ "$far" = yes ] ;;
    kill_launcher | slow_disk | failing_sync | failing_disk) [ "$far" = no ] ;;
    esac
}
play_history() {
    run=$work/run small=no far=no moving=no gaps=0
    pick "${layouts[@]}"
    layout=$picked
    draw 6
    case $drawn in
    0 | 1) moving=yes ;;
    2) [ $hosts = yes ] && far=yes layout="layout.dp=2" ;;
    esac
    draw 3
    [ -n "$disk" ] && [ $far = no ] && [ $drawn -eq 0 ] && small=yes run=$disk/run
    rm -rf "$run"
    fault=nothing
    reference "$layout"
    code=1
    while [ $code -ne 0 ]; do
        round=$((round + 1))
        pick "${layouts[@]}"
        [ "$moving" = yes ] && layout=$picked
        pick "${faults[@]}"
        draw 2 # where there is a link or a small disk, it is what fails half of the time
        [ $drawn -eq 0 ] && [ $small = yes ] && picked=full_disk
        [ $drawn -eq 0 ] && [ $far = yes ] && pick cut_short cut_long slow_link
        case " ${faults[*]} " in *" $picked "*) ;; *) pick "${faults[@]}" ;; esac
        until allowed "$picked"; do pick "${faults[@]}" nothing; done
        fault=$picked
        [ $SECONDS -lt "$seconds" ] || fault=nothing
        play_round
    done
    check_end
    histories=$((histories + 1))
    [ "$moving" = yes ] && moved=$((moved + 1))
}

exec 2>"$work/stderr" # where bash tells of each process that was killed
echo "$seconds s of faults, seed $seed: ${faults[*]}"
SECONDS=0 history=0 round=0 histories=0 moved=0
while [ $SECONDS -lt "$seconds" ]; do
    history=$((history + 1))
    play_history
done
for fault in "${faults[@]}"; do printf '%6d %s\n' "${count[$fault]:-0}" "$fault"; done
echo "$round rounds in $SECONDS s: $histories runs ended as the undisturbed one, $((histories - moved)) of them to the last bit; seed $seed"
exit 0
