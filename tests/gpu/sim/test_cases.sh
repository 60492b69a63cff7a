#!/bin/sh
# test_cases.sh CASES SIM: gpu_cases on the simulated driver in the folder SIM.
# With UCX 1.22 UCX's own CUDA transports move the data; with the UCX of the
# build, which has none, the library does. Both use CUDA IPC.
set -eu
cases=$1 sim=$2 here=$(dirname "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export LD_LIBRARY_PATH="$sim${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
export SIM_CUDA_COUNTS="$work/counts"

fail()
{
    echo "$1" >&2
    cat "$work/said" "$work/error" "$work/numbers" >&2
    exit 1
}

counted() # NAME: that number
{
    sed -n "s/^$1 //p" "$work/numbers"
}

code=0
# Without a context current UCX frees nothing and cannot be armed. Work that is
# done late shows what was not waited for.
SIM_CUDA_STRICT=1 SIM_CUDA_DELAY_US=100 "$cases" \
    > "$work/said" 2> "$work/error" || code=$?
"$here/counts.sh" "$work/counts" > "$work/numbers"
[ $code = 4 ] || fail "exit $code"
[ "$(grep -c '^case|.*|ok$' "$work/said")" -ge 6 ] || fail "not all cases"
[ "$(counted undefined)" = 0 ] || fail "undefined behaviour"
[ "$(counted copies_ipc)" -gt 0 ] || fail "CUDA IPC was not used"
if [ -n "${TMSG_OTHER_HALF:-}" ]; then
    [ "$(counted held_bytes)" -lt 134217728 ] || fail "UCX kept its memory"
    ! grep -q 'UCX *ERROR' "$work/error" || fail "UCX reported an error"
fi
cat "$work/numbers"
