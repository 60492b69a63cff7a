#!/bin/sh
# ptx.sh NVCC SOURCE WORK: what tensormsg/device/bell.h becomes in the kernels of
# docs/reference/bells.md, for two architectures, and that of bell_rate.c. Exit
# 77, with why: nvcc compiles nothing
# here.
set -eu
nvcc=$1 source=$2 work=$3
mkdir -p "$work"

fail()
{
    echo "ptx.sh: $*" >&2
    exit 1
}

echo 'int nothing;' > "$work/nothing.cu"
if ! "$nvcc" -ptx "$work/nothing.cu" -o "$work/nothing.ptx" \
    > "$work/log" 2>&1; then
    echo "SKIPPED: nvcc compiles nothing here: $(head -1 "$work/log")"
    exit 77
fi

# count FILE PATTERN WANTED
count()
{
    found=$(grep -c "$2" "$1" || true)
    [ "$found" -eq "$3" ] || fail "$1 has $found of $2, and should have $3"
}

# What goes by a stream is of the reader's program; the kernels are compiled.
awk '/^```cuda$/ { inside = 1; next } /^```$/ { inside = 0 } inside' \
    "$source/docs/reference/bells.md" | sed -n '/^#include/,$p' > "$work/page.cu"
grep -q __global__ "$work/page.cu" || fail "docs/reference/bells.md has no
kernel"

# Each of the two waits loads before its loop, within it, and the status after it.
for arch in sm_75 sm_90; do
    ptx=$work/$arch.ptx
    "$nvcc" -ptx -arch=$arch -I "$source/include" "$work/page.cu" -o "$ptx"
    count "$ptx" 'st\.release\.sys\.u64' 2
    count "$ptx" 'ld\.acquire\.sys\.u64' 6
    count "$ptx" 'nanosleep\.u32' 2
    count "$ptx" 'ld\.global\.nc' 0
    count "$ptx" 'atom\.\|red\.' 0
done

# The kernel that is measured.
"$nvcc" -ptx -arch=compute_75 -I "$source/include" \
    "$source/tests/gpu/bell_kernel.cu" -o "$work/bell_kernel.ptx"
count "$work/bell_kernel.ptx" '\.entry ring' 1
count "$work/bell_kernel.ptx" 'st\.release\.sys\.u64' 1
