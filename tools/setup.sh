#!/usr/bin/env bash
# Makes sure that what the build needs is there: installs missing Debian packages when it may, and
# otherwise prints the one line to type. Fast when nothing is missing.
#   --checks   also what `make format-check` and `make lint` need
#   --fuzz     also what `make fuzz` needs
set -u
missing=()
what=${1:-}
have() { command -v "$1" >/dev/null 2>&1; }
header() { [ -n "$(find /usr/include /usr/local/include -maxdepth 2 -name "$1" -print -quit 2>/dev/null)" ]; }

have gcc || have cc || missing+=(gcc)
header stdio.h || missing+=(libc6-dev)
have pkg-config || missing+=(pkg-config)
header yaml.h || missing+=(libyaml-dev)
header jansson.h || missing+=(libjansson-dev)
header oniguruma.h || missing+=(libonig-dev)
header utf8proc.h || missing+=(libutf8proc-dev)
header zlib.h || missing+=(zlib1g-dev)
header zstd.h || missing+=(libzstd-dev)
header evp.h || missing+=(libssl-dev)
header microhttpd.h || missing+=(libmicrohttpd-dev)
header cmocka.h || missing+=(libcmocka-dev)
have make || missing+=(make)
if [ "$what" = --checks ]; then
    have git || missing+=(git)
    have clang-format || missing+=(clang-format)
    have shfmt || missing+=(shfmt)
    have shellcheck || missing+=(shellcheck)
    have clang-tidy || missing+=(clang-tidy)
elif [ "$what" = --fuzz ]; then
    have clang || missing+=(clang)
    # The runtime of its sanitizers is a package of its own.
    [ -n "$(find /usr/lib -name 'libclang_rt.fuzzer-*.a' -print -quit 2>/dev/null)" ] || missing+=(libclang-rt-dev)
fi
[ ${#missing[@]} -eq 0 ] && exit 0

line="apt-get install -y --no-install-recommends ${missing[*]}"
sudo=""
if [ "$(id -u)" -ne 0 ]; then
    if have sudo && sudo -n true 2>/dev/null; then
        sudo=sudo
    else
        echo "Trireme needs a few packages. Type this, then try again:"
        echo "    sudo $line"
        exit 1
    fi
fi
if ! have apt-get; then
    echo "Trireme needs, under the names of your system: ${missing[*]}"
    exit 1
fi
echo "set-up: installing ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
log=$(mktemp)
if ! { $sudo $line || { $sudo apt-get update && $sudo $line; }; } >"$log" 2>&1; then
    tail -n 5 "$log"
    rm -f "$log"
    echo "set-up: the installation failed. Try by hand: $line"
    exit 1
fi
rm -f "$log"
