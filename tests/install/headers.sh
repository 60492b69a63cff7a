#!/bin/sh
# headers.sh INCLUDE DLPACK_INCLUDE...: every public header compiles alone, as
# C11 and as C++17, and before and after each dlpack.h.
set -eu
include=$1
shift
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

for header in "$include"/tensormsg/*.h; do
    ours="#include <tensormsg/${header##*/}>"
    compile "$ours" <<EOF
$ours
EOF
    for dlpack in "$@"; do
        theirs="#include \"$dlpack/dlpack/dlpack.h\""
        compile "$ours before $dlpack" <<EOF
$ours
$theirs
EOF
        compile "$ours after $dlpack" <<EOF
$theirs
$ours
EOF
    done
done
exit $failed
