#!/bin/sh
# kernels.sh NVCC BUILD: gpu_cases once more, as BUILD/tests/gpu/gpu_kernels,
# with kernels that nvcc compiles, and says by which one. Exit 77, with why: it
# compiles nothing at all here, as one that is older than the host's compiler,
# or the build is a sanitizer's, which a program of nvcc's does not load.
set -eu
nvcc=$1 build=$2
here=$(dirname "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
version=$("$nvcc" --version | sed -n 's/.*release .*, V/nvcc /p')
if grep -q '^TMSG_SANITIZE:[A-Z]*=.' "$build/CMakeCache.txt" 2> /dev/null; then
    echo "SKIPPED: the library is built with a sanitizer"
    exit 77
fi
echo 'int nothing;' > "$work/nothing.cu"
if ! "$nvcc" -c "$work/nothing.cu" -o "$work/nothing.o" > "$work/log" 2>&1; then
    echo "SKIPPED: $version compiles nothing here:" \
        "$(grep -m 1 error "$work/log" || head -1 "$work/log")"
    exit 77
fi
"$nvcc" -O2 -Xcompiler -Wall,-Wextra -Werror all-warnings -DTMSG_GPU_KERNELS \
    -I "$here/../../include" "$here/cases.c" "$here/kernels.cu" \
    -o "$work/gpu_kernels" -L "$build" -ltensormsg -ldl \
    -Xlinker -rpath -Xlinker "$build"
mkdir -p "$build/tests/gpu"
mv "$work/gpu_kernels" "$build/tests/gpu/gpu_kernels"
echo "compiled by $version"
