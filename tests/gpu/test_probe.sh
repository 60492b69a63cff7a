#!/bin/sh
# test_probe.sh PROBE EXPECTED: what the driver that the loader finds answers to
# gpu_probe's questions, compared with EXPECTED, but for the facts.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
code=0
"$1" > "$work/all" || code=$?
grep -v '^fact' "$work/all" > "$work/said" || true
diff -u "$2" "$work/said" || code=1
exit $code
