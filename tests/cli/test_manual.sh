#!/usr/bin/env bash
# The manual pages have every verb, flag and setting that --help has, and groff has nothing to say
# against them. Argument: the build directory.
set -u
trireme=${1:-build}/trireme
tmp=$(mktemp -d "${TMPDIR:-/tmp}/trireme-man-XXXXXX")
trap 'rm -rf "$tmp"' EXIT
failures=0 pages=0

fail() {
    failures=$((failures + 1))
    echo "FAILED: $*"
}

# As a reader sees it, without what roff needs.
plain() {
    sed -e 's/\\f[BRI]//g; s/\\-/-/g; s/\\(aq/'\''/g; s/\\e/\\/g'
}

verbs=$("$trireme" --help | awk '/^Usage/ { on = 1; next } /^First/ { exit } on && NF { print $1 }')
[ "$(wc -w <<<"$verbs")" -gt 10 ] || fail "--help lists few verbs: $verbs"
"$trireme" man --list >"$tmp/list"
# shellcheck disable=SC2086
printf 'trireme\n' >"$tmp/want" && printf 'trireme-%s\n' $verbs >>"$tmp/want"
diff "$tmp/want" "$tmp/list" || fail "man --list does not have the pages of all verbs"

"$trireme" man | plain >"$tmp/trireme.1"
for verb in $verbs; do
    grep -qx -- "$verb" "$tmp/trireme.1" || fail "trireme.1 has no $verb"
    "$trireme" man "$verb" | plain >"$tmp/trireme-$verb.1"
    "$trireme" "$verb" --help all >"$tmp/help"
    awk '/^Settings/ { exit } $1 ~ /^--/ { print $1 }' "$tmp/help" >"$tmp/flags"
    [ -s "$tmp/flags" ] || fail "$verb --help has no flags"
    # Lines that begin with a flag, each after a .TP.
    awk '{ if (before == ".TP" && $1 ~ /^--/) print $1; before = $0 }' "$tmp/trireme-$verb.1" |
        diff "$tmp/flags" - || fail "trireme-$verb.1 has other flags than --help"
    awk '/^Settings/ { on = 1 } on && /^  [a-z0-9_]+\.[a-z0-9_]+ / { print $1 }' "$tmp/help" >"$tmp/settings"
    awk '{ if (before == ".TP" && $1 ~ /^[a-z0-9_]+\.[a-z0-9_]+$/) print $1; before = $0 }' "$tmp/trireme-$verb.1" |
        diff "$tmp/settings" - || fail "trireme-$verb.1 has other settings than --help all"
done
[ "$(grep -cE '^[a-z]+\.[a-z_0-9]+$' "$tmp/trireme-train.1")" -gt 50 ] || fail "trireme-train.1 has few settings"

if command -v groff >/dev/null; then
    while read -r page; do
        pages=$((pages + 1))
        "$trireme" man "$page"
    done <"$tmp/list" >"$tmp/all.1"
    groff -man -Tutf8 -ww -z "$tmp/all.1" >"$tmp/out" 2>&1 || fail "groff fails"
    [ -s "$tmp/out" ] && fail "groff warns: $(head -n 5 "$tmp/out")"
else
    echo "skipped: what groff says of the manual pages (it is not installed)"
fi

"$trireme" man nonsense >/dev/null 2>"$tmp/err" && fail "man nonsense is no error"
grep -q 'unknown verb "nonsense"' "$tmp/err" || fail "man nonsense: $(cat "$tmp/err")"
"$trireme" man train plan >/dev/null 2>"$tmp/err" && fail "man of two verbs is no error"

echo "$(wc -w <<<"$verbs") verbs, $pages pages looked at by groff, $failures failures"
[ $failures -eq 0 ]
