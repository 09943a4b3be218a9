#!/usr/bin/env bash
# A bit that flips behind TCP's checksum: with sums of messages it is found at once, without them
# when copies are compared, every run.compare_every steps and before each save. What was saved stays
# good. Argument: the build directory.
set -u
trireme=$(cd "$1" && pwd)/trireme
work=$(mktemp -d "${TMPDIR:-/tmp}/trireme-flip-XXXXXX")
trap 'rm -rf "$work"' EXIT
failures=0
fail() {
    echo "FAILED: $*"
    failures=$((failures + 1))
}
read -ra compiler <<<"${CC:-cc}" # may be two words: ccache gcc
command -v "${compiler[0]}" >/dev/null || {
    echo "no C compiler to make a bad network with"
    exit 77
}
ldd "$trireme" | grep -q "libasan\|libtsan\|libubsan" && {
    echo "sanitizers do not let a library stand before them"
    exit 77
}

# Flips one bit, once, of what one rank receives of the sums that others have formed: in a ring of
# three each fourth message is the last that a rank gets of an all_reduce.
cat >"$work/flip.c" <<'C'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
ssize_t recvmsg(int fd, struct msghdr *m, int flags)
{
    static ssize_t (*real)(int, struct msghdr *, int);
    if (!real)
        real = (ssize_t(*)(int, struct msghdr *, int))dlsym(RTLD_NEXT, "recvmsg");
    ssize_t n = real(fd, m, flags);
    struct {
        uint32_t magic, type;
        uint64_t number, num_bytes;
    } head;
    if (m->msg_iovlen != 2 || n <= (ssize_t)m->msg_iov[0].iov_len || m->msg_iov[0].iov_len < sizeof head)
        return n;
    memcpy(&head, m->msg_iov[0].iov_base, sizeof head);
    if (head.magic != 0x54524932 || head.num_bytes < 4096 || head.number % 4 != 0 ||
        access(getenv("FLIP_WHEN"), F_OK) != 0)
        return n;
    int once = open(getenv("FLIP_ONCE"), O_CREAT | O_EXCL | O_WRONLY, 0600);
    if (once >= 0)
        ((unsigned char *)m->msg_iov[1].iov_base)[2] ^= 1; /* of the first number's mantissa */
    return n;
}
C
"${compiler[@]}" -shared -fPIC "$work/flip.c" -o "$work/flip.so" -ldl || exit 1
# train NAME WHEN SETTING...: on a network that flips a bit once WHEN exists.
train() {
    local name=$1 when=$2 args=()
    shift 2
    for setting; do args+=(--set "$setting"); done
    rm -f "$work/flipped"
    FLIP_WHEN=$when FLIP_ONCE=$work/flipped LD_PRELOAD=$work/flip.so timeout -s KILL 200 "$trireme" train \
        recipes/tiny.yaml --set layout.dp=3 --set train.batch=12 --set train.steps=8 --set run.transport=tcp \
        --set run.collective=ring --set run.threads=1 --set ckpt.async=false --set run.dir="$work/$name" \
        "${args[@]}" >"$work/out" 2>&1
    code=$?
    [ -e "$when" ] && [ ! -e "$work/flipped" ] && fail "$name: nothing was flipped"
}
says() { # exit code, text
    [ $code -eq "$1" ] && grep -q "$2" "$work/out" || fail "exit code $code, not $1, or no \"$2\": $(grep trireme: "$work/out" | head -n 3)"
}

train clean "$work/never" # with sums of messages, which change nothing
says 0 "written to"
# Nobody looks: other weights, and no word. This is what the rest is about.
train silent / run.message_sums=false run.compare_every=0
says 0 "written to"
cmp -s "$work/clean/weights.safetensors" "$work/silent/weights.safetensors" && fail "the flipped bit had no effect"
# Copies are compared every so many steps.
train every / run.message_sums=false run.compare_every=3
says 1 "after step 3 rank [012] holds other bits of [a-z0-9._]* .*than ranks [012] and [012]"
says 1 "nothing was before: train again"
[ ! -e "$work/every/weights.safetensors" ] || fail "weights with a wrong bit were saved"
# And before each save, which then does not happen.
train save "$work/save/ckpt/step-2" run.message_sums=false ckpt.every=2
says 1 "after step 4 rank [012] holds other bits of"
says 1 "save/ckpt/step-2 was saved when all copies were equal"
[ -d "$work/save/ckpt/step-2" ] && [ ! -e "$work/save/ckpt/step-4" ] || fail "saved: $(ls "$work/save/ckpt")"
# From there it goes on to the weights of a run that nothing happened to.
train save "$work/never" run.message_sums=false ckpt.every=2 run.resume=true
says 0 "written to"
cmp -s "$work/clean/weights.safetensors" "$work/save/weights.safetensors" || fail "the good checkpoint was not good"
# At the end, too.
train last / run.message_sums=false
says 1 "after step 8 rank [012] holds other bits of"
# With sums, which are the default, at once.
train sums /
says 1 "bytes from rank [012] are not those that it sent to rank [012] (checksum"
grep -q "after step" "$work/out" && fail "it was not found at once"
[ $failures -eq 0 ]
