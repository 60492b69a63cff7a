#!/bin/sh
# package.sh PYTHON FOLDER BUILD_DIR: builds the wheel with what the environment
# of PYTHON has (no index is asked) and installs it into FOLDER/venv, whose other
# packages are those of that environment. The C library's objects are those of
# BUILD_DIR (as_built.sh); `make soak` compiles all of it.
set -eu
python=$1
mkdir -p "$2"
folder=$(cd "$2" && pwd)
source=$(cd "$(dirname "$0")/../../.." && pwd)
export PYTHONDONTWRITEBYTECODE=1 PIP_NO_INDEX=1 PIP_DISABLE_PIP_VERSION_CHECK=1

# The backend imports every package that offers files to CMake; ucxx's refuses
# the distribution's UCX. Ones that are empty offer none.
for name in ucxx libucxx; do
    mkdir -p "$folder/empty/$name"
    : > "$folder/empty/$name/__init__.py"
done

rm -rf "$folder/dist"
launcher="$source/tests/install/as_built.sh;$3;src/core:src/serialize:src/memory:src/am:src/rpc"
tls=$(sed -n 's/^TMSG_TLS:[A-Z]*=//p' "$3/CMakeCache.txt")
# The build around this one has the library that is optimized as a whole.
PYTHONPATH="$folder/empty" "$python" -m pip -q wheel --no-build-isolation --no-deps \
    --config-settings=build-dir="$folder/build" \
    --config-settings=cmake.define.TMSG_LTO=OFF \
    --config-settings=cmake.define.TMSG_TLS="$tls" \
    --config-settings=cmake.define.CMAKE_C_COMPILER_LAUNCHER="$launcher" -w "$folder/dist" "$source"

rm -rf "$folder/venv"
"$python" -m venv --without-pip "$folder/venv"
site=$("$folder/venv/bin/python" -c \
    'import sysconfig; print(sysconfig.get_path("platlib"))')
"$python" -m pip -q install --no-deps --target "$site" "$folder"/dist/*.whl
"$python" -c 'import sysconfig; print(sysconfig.get_path("platlib"))' \
    > "$site/tests.pth"
"$folder/venv/bin/python" -c \
    'import tensormsg; print(tensormsg.__file__, tensormsg.info()["ucx"])'
