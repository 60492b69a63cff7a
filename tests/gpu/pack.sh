#!/bin/bash
# pack.sh [--offline] [BUILD [TO]]: makes a folder with all that all.sh needs on
# a bare x86-64 machine with an NVIDIA GPU and its driver, and nothing else of
# what the library is built with. BUILD is a build of this tree (default: build),
# TO the folder (default: build/gpu-carry, which git ignores). Then, there:
#
#     OUT=RESULTS bash FOLDER/all.sh
#
#   bin/      gpu_cases, gpu_rate, gpu_bell_rate, gpu_kernels, gpu_probe,
#             tensormsg
#   lib/      the library and what it needs, but the C library
#   plain/    the UCX that the build found, without CUDA
#   cuda/     UCX 1.22 with its CUDA plug-ins and ucx_perftest, of libucx-cu13
#   python/   the Python package, unpacked, and cffi's part for several Pythons
#   packed    what it was made of
#
# What is missing is named, and all.sh then says what it does not run. Only
# cffi's part is fetched, once, into build/gpu-inputs; --offline fetches none.
set -eu
offline=
[ "${1:-}" != --offline ] || { offline=1; shift; }
case ${1:-} in -*) echo "pack.sh: '$1' is no option; see its first lines" >&2; exit 2 ;; esac
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
build=$(realpath "${1:-$root/build}")
to=${2:-$root/build/gpu-carry}
most_kib=$((40 * 1024))
for program in tests/gpu/gpu_cases tests/gpu/gpu_rate tensormsg; do
    [ -x "$build/$program" ] || {
        echo "pack.sh: no $build/$program: build it with -DTMSG_BUILD_TESTS=ON" >&2
        exit 2
    }
done
if [ -e "$to" ] && [ ! -e "$to/packed" ]; then
    echo "pack.sh: $to is there and was not made by pack.sh" >&2
    exit 2
fi
rm -rf "$to"
mkdir -p "$to/bin" "$to/lib" "$to/plain/ucx" "$to/python"
to=$(realpath "$to")
: > "$to/packed"
missing() { echo "missing: $*" | tee -a "$to/packed" >&2; }
say() { echo "$*" >> "$to/packed"; }
say "packed: $(date -u '+%Y-%m-%d %H:%M') of $(git -C "$root" describe --always --dirty 2> /dev/null || echo 'no commit')"

# The library and its programs, without debug information.
library=$(readlink -f "$build/libtensormsg.so")
soname=$(readelf -d "$library" | sed -n 's/.*SONAME.*\[\(.*\)\]/\1/p')
strip -o "$to/lib/$soname" "$library"
strip -o "$to/bin/tensormsg" "$build/tensormsg"
for program in "$build"/tests/gpu/gpu_{cases,rate,bell_rate,probe}; do
    [ ! -x "$program" ] || strip -o "$to/bin/$(basename "$program")" "$program"
done
if [ -x "$to/bin/gpu_probe" ]; then
    cp "$here/probe.txt" "$to/" # what the simulated driver answers
else
    missing "gpu_probe: the driver is asked nothing"
fi

# Kernels, compiled here: there they need no compiler.
code=77 said='no nvcc here'
if nvcc=$(command -v nvcc || ls /usr/local/cuda/bin/nvcc 2> /dev/null); then
    code=0
    said=$("$here/kernels.sh" "$nvcc" "$build" 2>&1) || code=$?
fi
case $code in
0)
    strip -o "$to/bin/gpu_kernels" "$build/tests/gpu/gpu_kernels"
    say "kernels: $said"
    # The driver compiles it for its GPU.
    "$nvcc" -ptx -arch=compute_75 -I "$root/include" "$here/bell_kernel.cu" \
        -o "$to/bin/bell_kernel.ptx"
    ;;
77) missing "gpu_kernels: $said" ;;
*)
    echo "pack.sh: gpu_kernels: $said" >&2
    exit 1
    ;;
esac

# What the loader finds for them, but the C library.
for found in $(ldd "$library" "$build/tensormsg" |
    sed -n 's/.*=> \(\/[^ ]*\) .*/\1/p' | sort -u); do
    name=$(basename "$found")
    case $name in
    lib[cm].so.* | libdl.so.* | libpthread.so.* | librt.so.* | ld-linux*) ;;
    libtensormsg.so.*) ;;
    libuc[pstm].so.* | libnuma.so.*) cp -L "$found" "$to/plain/$name" ;;
    *) cp -L "$found" "$to/lib/$name" ;;
    esac
    case $name in libuct.so.*) plugins=$(dirname "$(readlink -f "$found")")/ucx ;; esac
done
cp -L "$plugins"/libuct_cma.so.0 "$to/plain/ucx/"
say "plain UCX: $(LD_LIBRARY_PATH=$to/lib:$to/plain "$to/bin/tensormsg" info |
    sed -n 's/^ *ucx_version *//p')"

# The CUDA-aware UCX, which scripts/setup.sh test installs.
venv=$(sed -n 's/^TMSG_VENV:[A-Z]*=//p' "$build/CMakeCache.txt")
site=$(echo "$venv"/lib/python3*/site-packages)
if [ -e "$site/libucx/lib/ucx/libuct_cuda.so.0" ]; then
    mkdir -p "$to/cuda/libucx/bin" "$to/cuda/libucx/lib/ucx"
    for file in "$site"/libucx/lib/lib*.so.0 "$site"/libucx/lib/ucx/lib*.so.0 \
        "$site"/libucx/bin/ucx_perftest "$site"/libucx_cu13.libs/*; do
        name=${file#"$site/"}
        mkdir -p "$to/cuda/$(dirname "$name")"
        strip --strip-unneeded -o "$to/cuda/$name" "$file"
        chmod 755 "$to/cuda/$name"
    done
    say "CUDA-aware UCX: $(cat "$site/libucx/UCX_WHEEL_VERSION.txt")"
else
    missing "a CUDA-aware UCX: no libucx-cu13 in $venv (scripts/setup.sh test)"
fi

# The Python package: one wheel does for all versions of Python.
wheel=$(echo "$build"/bindings/dist/tensormsg-*.whl)
if [ -f "$wheel" ]; then
    python3 -m zipfile -e "$wheel" "$to/python"
    find "$to/python" -name '*.so*' -exec strip --strip-unneeded {} +
    cp "$here/arrays.py" "$to/python/"
    say "Python: $(basename "$wheel")"
    inputs=$root/build/gpu-inputs
    mkdir -p "$inputs"
    version=$(sed -n 's/^cffi==//p' "$root/tests/requirements.txt")
    for python in 3.10 3.11 3.12 3.13 3.14; do
        tag=cp${python/./}
        [ -n "$offline" ] || ls "$inputs/cffi-$version-$tag"-*.whl > /dev/null 2>&1 ||
            "$venv/bin/python" -m pip -q --disable-pip-version-check download \
                --no-deps --only-binary=:all: --python-version "$python" \
                --platform manylinux_2_17_x86_64 -d "$inputs" "cffi==$version" ||
            true
        for part in "$inputs/cffi-$version-$tag"-*.whl; do
            [ ! -f "$part" ] || python3 - "$part" "$to/python" <<'PY'
import sys
import zipfile
with zipfile.ZipFile(sys.argv[1]) as wheel:
    for name in wheel.namelist():
        if name.startswith("_cffi_backend"):
            wheel.extract(name, sys.argv[2])
PY
        done
    done
    say "cffi $version for Python $(cd "$to/python" &&
        echo _cffi_backend.* | grep -o 'cpython-[0-9]*' | tr '\n' ' ')"
else
    missing "the Python package: ctest --test-dir $build -R bindings/wheel makes it"
fi

cp "$here/all.sh" "$to/"
size=$(du -sk "$to" | cut -f1)
[ "$size" -le "$most_kib" ] || {
    echo "pack.sh: $to has $size KiB, more than $most_kib" >&2
    exit 1
}
echo "$to: $((size / 1024)) MiB"
