#!/bin/sh
# make.sh SOURCE_DIR: `make -j2` of two goals, from nothing, as somebody with
# MAKEFLAGS=-j2 has it; then `make install` into a prefix.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset MAKEFLAGS MAKELEVEL

# On one line: make runs each line of a recipe by itself.
flags='-DTMSG_BUILD_BENCH=OFF -DTMSG_LTO=OFF -DCMAKE_BUILD_TYPE=Debug -DCMAKE_C_FLAGS_DEBUG='
TMSG_NO_SETUP=1 make -C "$1" -j2 BUILD="$work/build" JOBS=2 \
    PREFIX="$work/prefix" CMAKE_FLAGS="$flags" all install > "$work/log" 2>&1 || {
    cat "$work/log"
    exit 1
}
"$work/prefix/bin/tensormsg" --version
