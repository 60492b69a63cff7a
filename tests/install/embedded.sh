#!/bin/sh
# embedded.sh SOURCE_DIR VERSION BUILD_DIR: the library as a folder of another
# project, which gets the two libraries and the command, and no tests or examples.
# Most objects are those of BUILD_DIR (as_built.sh).
set -eu
source=$1
version=$2
tls=$(sed -n 's/^TMSG_TLS:[A-Z]*=//p' "$3/CMakeCache.txt")
folders=src/core:src/serialize:src/memory:src/am:src/rpc
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

{
    cmake -S "$here/embedded" -B "$work" -G Ninja -DTENSORMSG="$source" \
        -DTMSG_LTO=OFF "-DTMSG_TLS=$tls" \
        "-DCMAKE_C_COMPILER_LAUNCHER=$here/as_built.sh;$3;$folders" &&
        cmake --build "$work" -j 2
} > "$work/log" 2>&1 || {
    cat "$work/log"
    exit 1
}
for program in with_shared with_static; do
    got=$("$work/$program")
    echo "$program: $got"
    [ "$got" = "$version" ]
done
for folder in tests examples bench; do
    [ ! -e "$work/tensormsg/$folder" ] || {
        echo "$folder was built as well" >&2
        exit 1
    }
done
