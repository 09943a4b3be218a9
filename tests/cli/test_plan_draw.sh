#!/usr/bin/env bash
# trireme plan --search --draw: which files there are, that they are XML, that their numbers are
# those of --json, and what is refused before the search. Argument: the build directory. Run from
# the root of the repository.
set -u
build=${1:-build}
trireme=$(cd "$build" && pwd)/trireme
tmp=$(mktemp -d "${TMPDIR:-/tmp}/trireme-plan-draw-XXXXXX")
trap 'rm -rf "$tmp"' EXIT
cd "$tmp" || exit 1
failures=0 checks=0
names="heatmap best pareto scaling memory timeline utilisation"

fail() {
    failures=$((failures + 1))
    echo "FAILED: $*"
    head -c 1500 err 2>/dev/null
}

model=(--set model.num_layers=4 --set model.dim=64 --set model.num_heads=4 --set model.ffn_dim=128
    --set model.vocab=256 --set train.batch=16 --set data.seq_len=32 --set precision.kind=bf16)

# run CODE ARGS...: trireme plan --search of a small model ends with CODE.
run() {
    local want=$1 code
    shift
    checks=$((checks + 1))
    "$trireme" plan --search --device h100 --devices 4 --exact 32 "${model[@]}" "$@" >out 2>err \
        </dev/null
    code=$?
    [ $code -eq "$want" ] || fail "plan --search $* ended with $code, not $want"
}

# refused TEXT ARGS...: with one line that holds TEXT, and before the search, so nothing is printed.
refused() {
    local text=$1
    shift
    run 2 "$@"
    if [ "$(wc -l <err)" -ne 1 ] || ! grep -qF -- "$text" err; then
        fail "plan $* does not say \"$text\""
    fi
    [ -s out ] && fail "plan $* was refused after the search"
}

# Every tag is closed by its own, quotes end, and there is one root.
is_xml() {
    awk '
        { text = text $0 "\n" }
        END {
            sub(/^<!--[^>]*-->/, "", text)
            while (match(text, /<[^>]*>/)) {
                before = substr(text, 1, RSTART - 1)
                tag = substr(text, RSTART + 1, RLENGTH - 2)
                text = substr(text, RSTART + RLENGTH)
                gsub(/&(lt|gt|amp|quot);/, "", before)
                if (before ~ /&/ || gsub(/"/, "\"", tag) % 2) exit 1
                name = tag
                sub(/^\//, "", name)
                sub(/[^a-z].*/, "", name)
                if (name == "") exit 1
                if (tag ~ /^\//) { if (depth < 1 || open[depth--] != name) exit 1 }
                else if (tag !~ /\/$/) { roots += depth == 0; open[++depth] = name }
            }
            exit !(depth == 0 && roots == 1 && text !~ /[<&]/)
        }' "$1"
}

# first KEY: the number of that key that comes first in the JSON of the last run, which is the
# winner's.
first() {
    sed 's/^.*"best":\[//' out | grep -oE "\"$1\":[-0-9.e+]+" | head -1 | sed 's/.*://'
}

# near WHAT FOUND WANTED
near() {
    checks=$((checks + 1))
    awk -v a="$2" -v b="$3" 'BEGIN { d = a - b; if (d < 0) d = -d
        exit !(a != "" && b != "" && d <= 1e-6 * b) }' || fail "$1 is $2, not $3"
}

# hover FILE PATTERN: the number behind PATTERN in what the mouse is told, of its first place.
hover() {
    grep -oE "$2[-0-9.e+]+" "$1" | head -1 | sed -E 's/.*[^-0-9.e+]([-0-9.e+]+)$/\1/'
}

# ---- the pictures ----

run 0 --draw made/here --json
for name in $names; do
    checks=$((checks + 1))
    file=made/here/$name.svg
    [ -s "$file" ] || {
        fail "there is no $file"
        continue
    }
    is_xml "$file" || fail "$file is no XML"
    if command -v xmllint >/dev/null; then xmllint --noout "$file" || fail "$file: xmllint"; fi
    grep -qx "written: $file" err || fail "standard error does not say that $file was written"
done
[ "$(find made/here -type f | wc -l)" -eq 7 ] || fail "not seven files"
[ "$(wc -l <out)" -eq 1 ] || fail "more than the document on standard output"
grep -q '^{"devices":4,' out || fail "the document is not of four devices"

# The winner's numbers, as the document has them.
seconds=$(first step_seconds)
near "the first bar" "$(hover made/here/best.svg '<title>step: ')" "$seconds"
near "its products" "$(hover made/here/best.svg '<title>products: ')" "$(first products_seconds)"
near "its update" "$(hover made/here/best.svg '<title>update: ')" "$(first update_seconds)"
tp=$(first tp) pp=$(first pp)
near "the winner's cell" "$(hover made/here/heatmap.svg "<title>tp $tp, pp $pp: ")" "$seconds"
near "the ring" "$(grep -A0 'class="winner"' made/here/pareto.svg | hover /dev/stdin '<title>')" \
    "$seconds"
near "its bytes" "$(grep 'class="winner"' made/here/pareto.svg | hover /dev/stdin ' s, ')" \
    "$(first memory_bytes)"
near "the point of four devices" "$(hover made/here/scaling.svg '<title>4 devices: ')" "$seconds"
near "the plan of the memory" "$(hover made/here/memory.svg 'plan: ')" "$(first memory_bytes)"
for name in memory timeline utilisation; do
    ms=$(hover "made/here/$name.svg" 'a step takes ')
    awk -v a="$ms" -v b="$seconds" 'BEGIN { d = a - 1e3 * b; if (d < 0) d = -d
        exit !(a != "" && d <= 1e-5 * 1e3 * b) }' || fail "the step of $name.svg takes $ms ms"
done

# A frame, and a cell for each division of four devices: tp and pp of 1, 2 and 4, not both large.
[ "$(grep -c 'class="winner"' made/here/heatmap.svg)" -eq 1 ] || fail "not one cell is framed"
cells=$(grep -oE '<g class="(looked|bounded|not)">' made/here/heatmap.svg | wc -l)
[ "$cells" -eq 6 ] || fail "$cells cells, not 6"
# All numbers of devices from 1 to 32, and a bar for each of the best.
for n in 1 2 4 8 16 32; do
    grep -q "<title>$n devices: " made/here/scaling.svg || fail "no point of $n devices"
done
best=$(sed 's/"front".*//' out | grep -o '"step_seconds"' | wc -l)
[ "$(grep -c '<title>step: ' made/here/best.svg)" -eq "$best" ] || fail "not $best bars"
# Pieces of the first bar make up the step.
sum=$(sed '/<title>step: /q' made/here/best.svg |
    grep -oE '<title>(products|attention|memory|update|messages over [^:]*|idle): [-0-9.e+]+' |
    sed 's/.*: //' | awk '{ s += $1 } END { printf "%.9g", s }')
near "the sum of the pieces" "$sum" "$seconds"

# Each is as wide as it takes long.
sed '/<title>step: /q' made/here/best.svg | grep -E '<title>(products|memory|update|idle): ' |
    sed -E 's/.* width="([0-9.]+)" height.*: ([-0-9.e+]+) s.*/\1 \2/' | awk '
        { scale = $1 / $2; if (NR == 1) first = scale
          if (scale < 0.995 * first || scale > 1.005 * first) exit 1 }
        END { exit NR < 3 }' || fail "the pieces of the first bar are not as wide as they take long"
# No cell is slower than the best of a mesh with the same tp and pp.
sed 's/"front".*//; s/{"layout":/\n/g' out | sed -nE \
    's/^\{"tp":([0-9]+),.*"pp":([0-9]+),.*"step_seconds":([-0-9.e+]+),.*/\1 \2 \3/p' >meshes
[ "$(wc -l <meshes)" -eq "$best" ] || fail "not the meshes of the document"
while read -r mesh_tp mesh_pp mesh_seconds; do
    awk -v cell="$(hover made/here/heatmap.svg "<title>tp $mesh_tp, pp $mesh_pp: ")" \
        -v mesh="$mesh_seconds" 'BEGIN { exit !(cell != "" && cell <= mesh * (1 + 1e-6)) }' ||
        fail "the cell of tp $mesh_tp and pp $mesh_pp is slower than $mesh_seconds s"
done <meshes

# The same again replaces them; text says so on standard output.
before=$(cat made/here/best.svg)
run 0 --draw made/here
grep -qx "written: made/here/best.svg" out || fail "standard output does not say what was written"
[ "$(cat made/here/best.svg)" = "$before" ] || fail "another picture of the same search"

# One device of four does not hold what all of them do not divide: its cell says how much it takes.
# Others hold some layouts, and say which were not looked at.
run 0 --budget 1.6MiB --fix layout.zero=0 --draw full
[ "$(grep -c 'does not fit</text>' full/heatmap.svg)" -eq 2 ] || # one is the legend's
    fail "not one cell does not fit into 1.6 MiB"
grep -qE '>over [0-9.]+ MiB<' full/heatmap.svg || fail "not how much that takes"
grep -qE '>at least [0-9.]+ ms<' full/heatmap.svg || fail "no bound of what was not looked at"

# ---- what is refused ----

mkdir mine
echo 'a drawing of mine' >mine/pareto.svg
refused "mine/pareto.svg: there is a file of that name" --draw mine
[ "$(cat mine/pareto.svg)" = 'a drawing of mine' ] || fail "a drawing was replaced"
[ "$(find mine -type f | wc -l)" -eq 1 ] || fail "pictures were written beside it"
touch plain
refused "name a folder" --draw plain
refused "name a folder" --draw new.svg
refused "plain is a file, not a directory" --draw plain/pictures
[ -e new.svg ] && fail "a folder new.svg was made"
if [ "$(id -u)" -ne 0 ]; then
    mkdir locked
    chmod 500 locked
    refused "name a place that you may write to" --draw locked
    refused "name a place that you may write to" --draw locked/deeper
fi

echo "$checks checks, $failures failures"
[ $failures -eq 0 ]
