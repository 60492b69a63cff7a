#!/bin/sh
# kernels.sh NVCC BUILD: gpu_cases once more, as BUILD/tests/gpu/gpu_kernels,
# with kernels that nvcc compiles, and says by which one; nothing is compiled
# where that one is of the same files. Exit 77, with why: it compiles nothing at
# all here, as one that is older than the host's compiler, or the build is a
# sanitizer's, which a program of nvcc's does not load.
# kernels.sh --of: what is kept beside it to tell of which files it is.
set -eu
here=$(dirname "$0")

# All that is compiled.
sum()
{
    cat "$0" "$here/cases.c" "$here/kernels.cu" "$here/kernels.h" \
        "$here"/sides.[ch] \
        "$here"/../../include/tensormsg/*.h | cksum
}

if [ "$1" = --of ]; then
    sum
    exit
fi
nvcc=$1 build=$2 program=$2/tests/gpu/gpu_kernels
version=$("$nvcc" --version | sed -n 's/.*release .*, V/nvcc /p')
if grep -q '^TMSG_SANITIZE:[A-Z]*=.' "$build/CMakeCache.txt" 2> /dev/null; then
    echo "SKIPPED: the library is built with a sanitizer"
    exit 77
fi
of="$(sum)
$version"
if [ -x "$program" ] && [ "$(cat "$program.of" 2> /dev/null)" = "$of" ]; then
    echo "compiled by $version"
    exit
fi
mkdir -p "$build/tests/gpu"
work=$(mktemp -d "$build/tests/gpu/work.XXXXXX")
trap 'rm -rf "$work"' EXIT
echo 'int nothing;' > "$work/nothing.cu"
if ! "$nvcc" -c "$work/nothing.cu" -o "$work/nothing.o" > "$work/log" 2>&1; then
    echo "SKIPPED: $version compiles nothing here:" \
        "$(grep -m 1 error "$work/log" || head -1 "$work/log")"
    exit 77
fi
# For H100 and H200 as they are; any other's driver compiles them when it starts.
"$nvcc" -O2 -gencode arch=compute_75,code=compute_75 \
    -gencode arch=compute_90,code=sm_90 -Xcompiler -Wall,-Wextra -Werror all-warnings -DTMSG_GPU_KERNELS \
    -I "$here/../../include" "$here/cases.c" "$here/sides.c" "$here/kernels.cu" \
    -o "$work/gpu_kernels" -L "$build" -ltensormsg -ldl \
    -Xlinker -rpath -Xlinker "$build"
echo "$of" > "$work/of"
mv "$work/gpu_kernels" "$program"
mv "$work/of" "$program.of"
echo "compiled by $version"
