#!/usr/bin/env bash
# README's "Use it from C": what this build installs compiles, links and runs a program of somebody
# else, with nothing but pkg-config's answer. Argument: the build directory.
set -u
build=$1
work=$(mktemp -d "${TMPDIR:-/tmp}/trireme-embed-XXXXXX")
trap 'rm -rf "$work"' EXIT
fail() {
    echo "FAILED: $1"
    tail -n 15 "$work/out"
    exit 1
}

# As it was built: the archive of a build with CUDA needs more.
cuda=no
[ -f "$build/cuda-yes" ] && cuda=yes
sanitize=
nm "$build/libtrireme.a" 2>/dev/null | grep -m1 -q __asan_init && sanitize=-fsanitize=address,undefined
nm "$build/libtrireme.a" 2>/dev/null | grep -m1 -q __tsan_init && sanitize=-fsanitize=thread
make --no-print-directory install-files BUILD="$build" CUDA=$cuda SANITIZE=$sanitize \
    PREFIX="$work/usr" DESTDIR= >"$work/out" 2>&1 || fail "make install-files"

# Beside it, what shells and man look for.
for page in $("$build/trireme" man --list); do
    [ -s "$work/usr/share/man/man1/$page.1" ] || fail "no manual page $page is installed"
done
"$build/trireme" completion bash | cmp - "$work/usr/share/bash-completion/completions/trireme" ||
    fail "no completion for bash is installed"
"$build/trireme" completion zsh | cmp - "$work/usr/share/zsh/site-functions/_trireme" ||
    fail "no completion for zsh is installed"

export PKG_CONFIG_PATH=$work/usr/lib/pkgconfig
flags=$(pkg-config --cflags --libs trireme 2>"$work/out") || fail "pkg-config does not know trireme"
# shellcheck disable=SC2086
${CC:-cc} examples/embed.c $flags -o "$work/embed" >"$work/out" 2>&1 ||
    fail "examples/embed.c does not link with: $flags"
(cd "$work" && ./embed run.device=cpu) >"$work/out" 2>&1 || fail "embed does not run"
grep -q loss "$work/out" || fail "embed trains nothing"

# shellcheck disable=SC2086
${CC:-cc} examples/ring.c $flags -o "$work/ring" >"$work/out" 2>&1 ||
    fail "examples/ring.c does not link with: $flags"
(cd "$work" && ./ring) >"$work/out" 2>&1 || fail "ring does not run"

# A run of two ranks with a callback, which goes on where it ended.
# shellcheck disable=SC2086
${CC:-cc} examples/two_ranks.c $flags -o "$work/two_ranks" >"$work/out" 2>&1 ||
    fail "examples/two_ranks.c does not link with: $flags"
(cd "$work" && ./two_ranks run.device=cpu run.dir=run) >"$work/out" 2>&1 || fail "two_ranks does not run"
grep -q "^step 20 of 20: loss" "$work/out" || fail "two_ranks is not told of its steps"
grep -q "^step 10: a checkpoint" "$work/out" || fail "two_ranks is not told of its checkpoint"
[ -s "$work/run/loss.svg" ] || fail "a run inside a program leaves no loss.svg"
cp "$work/run/weights.safetensors" "$work/archive.safetensors"
# The command line trains to the same bits with the settings that the run has kept.
"$build/trireme" train "$work/run/config.yaml" --set run.dir="$work/cli" >"$work/out" 2>&1 ||
    fail "trireme train does not take the settings of two_ranks"
cmp -s "$work/archive.safetensors" "$work/cli/weights.safetensors" ||
    fail "tr_train and trireme train train to different weights"
# Only ranks that are processes have logs and a status.
diff <(cd "$work/run" && find . -type f | sort) <(cd "$work/cli" && find . -type f ! -path "./log/*" ! -path "./status/*" ! -name tuning.json | sort) \
    >"$work/out" || fail "tr_train and trireme train leave different files"
(cd "$work" && ./two_ranks run.device=cpu run.dir=run train.steps=30 run.resume=true) >"$work/out" 2>&1 ||
    fail "two_ranks does not go on"
[ "$(grep -c "^step .* of" "$work/out")" = 1 ] || fail "two_ranks does not go on from its checkpoint"
[ "$(wc -l <examples/two_ranks.c)" -lt 60 ] ||
    fail "examples/two_ranks.c is to stay a page"

# The same with the shared library, which has the public names alone, each with a version.
shared=$work/usr/lib/libtrireme.so
if [ ! -e "$shared" ]; then
    echo "skipped: the shared library (this build has none)"
else
    flags=$(pkg-config --cflags --libs trireme-shared 2>"$work/out") || fail "no trireme-shared.pc"
    # shellcheck disable=SC2086
    ${CC:-cc} examples/two_ranks.c $flags -o "$work/shared" >"$work/out" 2>&1 ||
        fail "examples/two_ranks.c does not link with: $flags"
    for example in embed ring; do
        # shellcheck disable=SC2086
        ${CC:-cc} examples/$example.c $flags -o "$work/$example-shared" >"$work/out" 2>&1 ||
            fail "examples/$example.c does not link with: $flags"
    done
    (cd "$work" && ./ring-shared) >"$work/out" 2>&1 || fail "ring does not run with the shared library"
    readelf -d "$work/shared" >"$work/out"
    grep -q "NEEDED.*libtrireme\.so\." "$work/out" || fail "the example does not need libtrireme.so"
    (cd "$work" && ./shared run.device=cpu run.dir=so) >"$work/out" 2>&1 || fail "the shared library does not run"
    cmp -s "$work/so/weights.safetensors" "$work/archive.safetensors" ||
        fail "the shared library trains to other weights than the archive"
    nm -D --defined-only "$shared" | sed -n 's/.* [TDBR] //p' >"$work/out"
    [ "$(wc -l <"$work/out")" -gt 70 ] || fail "the shared library shows too little"
    ! grep -v "^tr_[a-z0-9_]*@@TRIREME_" "$work/out" || fail "the shared library shows what is not public"
fi

# Every package of the Makefile is there, whoever adds one.
sed -n 's/^PACKAGES *= *//p' Makefile | tr ' ' '\n' >"$work/packages"
while read -r name; do
    grep -q "^Requires:.* $name\( \|\$\)" "$PKG_CONFIG_PATH/trireme.pc" || fail "trireme.pc lacks $name"
done <"$work/packages"
echo "installed, linked and run"
