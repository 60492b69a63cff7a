#!/bin/sh
# headers.sh INCLUDE DLPACK_INCLUDE MAJOR: every public header compiles alone
# (with MAJOR 0), as C11 and as C++17, and before and after a dlpack.h of that
# major version; and what it declares is there for those who see it preprocessed,
# as cffi and cgo do.
set -eu
include=$1
dlpack=$2/dlpack/dlpack.h
major=$(sed -n 's/^#define DLPACK_MAJOR_VERSION //p' "$dlpack")
if [ "${major:-0}" != "$3" ]; then # the 0.x series has no such line
    echo "$dlpack is of version ${major:-0}.x, not $3.x" >&2
    exit 1
fi
strict='-pedantic -Wall -Wextra -Werror -fsyntax-only'
failed=0
text=$(mktemp)
trap 'rm -f "$text"' EXIT

# compile WHAT: the text on stdin, in both languages
compile()
{
    cat > "$text"
    # shellcheck disable=SC2086
    if ! gcc -x c -std=c11 $strict -I"$include" "$text" ||
        ! g++ -x c++ -std=c++17 $strict -I"$include" "$text"; then
        echo "failed: $1" >&2
        failed=1
    fi
}

# forbid WHY PATTERN: no line of a public header may match
forbid()
{
    if grep -nE "$2" "$include"/tensormsg/*.h; then
        echo "not allowed in a public header: $1" >&2
        failed=1
    fi
}

# Strings and attributes have no other way, and a version is asked for by #if.
forbid 'a number that is a macro' '^#define TMSG_[A-UW-Z][A-Z_]* [^"_]'
forbid 'a struct without a tag' '^typedef (struct|union) \{'
forbid 'an int of the platform as flags' 'unsigned (int )?flags'

count=0
for header in "$include"/tensormsg/*.h; do
    ours="#include <tensormsg/${header##*/}>"
    theirs="#include \"$dlpack\""
    [ "$3" -ne 0 ] || compile "$ours" <<EOF
$ours
EOF
    compile "$ours before $dlpack" <<EOF
$ours
$theirs
EOF
    compile "$ours after $dlpack" <<EOF
$theirs
$ours
EOF
    count=$((count + 1))
done
# For kernels: with bodies, and as the CPU sees them.
for header in "$include"/tensormsg/device/*.h; do
    [ "$3" -ne 0 ] || compile "$header" <<EOF
#include <tensormsg/device/${header##*/}>
EOF
    count=$((count + 1))
done
echo "$count headers"
exit $failed
