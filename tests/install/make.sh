#!/bin/sh
# make.sh SOURCE_DIR BUILD_DIR: `make -j2` of two goals, from nothing, as somebody
# with MAKEFLAGS=-j2 has it; then `make install` into a prefix. Most objects are
# those of BUILD_DIR (as_built.sh).
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset MAKEFLAGS MAKELEVEL

# On one line: make runs each line of a recipe by itself.
folders=src/core:src/serialize:src/memory:src/am:src/rpc:tools:examples
tls=$(sed -n 's/^TMSG_TLS:[A-Z]*=//p' "$2/CMakeCache.txt")
launcher="$1/tests/install/as_built.sh;$2;$folders"
flags="-DTMSG_BUILD_BENCH=OFF -DTMSG_LTO=OFF -DTMSG_TLS=$tls '-DCMAKE_C_COMPILER_LAUNCHER=$launcher'"
TMSG_NO_SETUP=1 make -C "$1" -j2 BUILD="$work/build" JOBS=2 \
    PREFIX="$work/prefix" CMAKE_FLAGS="$flags" all install > "$work/log" 2>&1 || {
    cat "$work/log"
    exit 1
}
"$work/prefix/bin/tensormsg" --version
