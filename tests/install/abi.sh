#!/bin/sh
# abi.sh check|update CC INCLUDE BASELINE: the ABI that the public headers
# promise, by abigail's tools, beside the baseline. A library is made of the
# headers alone, each function of them without a body: what the real one exports
# is install/symbols's.
set -eu
cc=$2 include=$3 baseline=$4
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

# The preprocessed declarations, each function ended by a body. All of one
# declaration comes to one line.
"$cc" -E -P -I"$include" -x c - <<'END' | tr '\n' ' ' | sed 's/;/;\n/g' |
#include <tensormsg/tensormsg.h>
END
    sed 's/^\( *__attribute__((visibility("default"))) .*)\);$/\1 { __builtin_trap(); }/' \
        > stub.c
"$cc" -shared -fPIC -fvisibility=hidden -fno-builtin -w -g -O0 \
    -Wl,-soname,libtensormsg.so stub.c -o libtensormsg.so
abidw --no-corpus-path --no-comp-dir-path --no-show-locs --no-elf-needed \
    --drop-undefined-syms libtensormsg.so > now.abi
functions=$(grep -c '<function-decl ' now.abi)
echo "$functions functions"
if [ "$1" = update ]; then
    cp now.abi "$baseline"
    exit
fi
# 4: something changed, 8: what breaks programs.
code=0
abidiff --no-show-locs "$baseline" now.abi > told || code=$?
[ $code = 0 ] && exit
cat told
echo "abi.sh: the ABI changed; if that was meant:" \
    "cmake --build build --target update-abi (CONTRIBUTING.md, Releases)" >&2
exit 1
