#!/bin/sh
# dlpack.sh PROGRAM MAJOR: examples/dlpack.c, compiled with a dlpack.h of that
# major version, says what it should.
set -eu
got=$(mktemp)
want=$(mktemp)
trap 'rm -f "$got" "$want"' EXIT
if [ "$2" -ge 1 ]; then
    echo 'versioned: 2 dimensions, 2 x 3, last pixel 6, not copied' > "$want"
fi
cat >> "$want" <<'WANTED'
plain: 2 dimensions, 2 x 3, last pixel 6, not copied
the producer has its tensor back
WANTED
"$1" > "$got"
diff -u "$want" "$got"
