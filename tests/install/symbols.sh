#!/bin/sh
# symbols.sh check|update LIBRARY LIST: the dynamic symbols that the shared
# library defines, against the list kept beside this script.
set -eu
export LC_ALL=C

exported()
{
    nm --dynamic --defined-only --format=posix "$1" |
        awk '$2 != "A" { sub(/@.*/, "", $1); print $1 }' | sort -u
}

if [ "$1" = update ]; then
    exported "$2" > "$3"
elif ! exported "$2" | diff -u "$3" -; then
    echo "the exported symbols changed; if that was meant:" \
        "cmake --build build --target update-symbols" >&2
    exit 1
fi
