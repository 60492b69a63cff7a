#!/bin/bash
# run.sh FOLDER: builds the tests of core and serialize for aarch64, by the compiler
# and libraries of scripts/wheel.sh, and runs them under qemu's user mode, with
# Debian's C library. Exit 77, with why: that cannot be done here. `make soak` runs it.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
made=$here/../../build/wheel/aarch64
mkdir -p "$1"
folder=$(realpath "$1")
qemu=$(command -v qemu-aarch64-static) || {
    echo 'SKIPPED: no qemu-aarch64-static: scripts/setup.sh soak installs it'
    exit 77
}
[ -e "$made/libraries" ] || "$here/../../scripts/wheel.sh" aarch64 "$folder"
if [ ! -d "$folder/root" ]; then
    cd "$folder"
    rm -f ./*.deb
    APT_CONFIG=$made/apt/conf apt-get -qq download libc6 libgcc-s1
    for deb in *.deb; do
        dpkg -x "$deb" root.part
    done
    mv root.part root
fi
cmake -S "$here" -B "$folder/build" -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo \
    -DCMAKE_TOOLCHAIN_FILE="$made/toolchain.cmake" | grep 'not run' || true
cmake --build "$folder/build" > "$folder/build.log" || { tail -20 "$folder/build.log"; exit 1; }

failed=0
cd "$folder"
for test in build/tests/test_*; do
    "$qemu" -L root "$test" > output.txt 2>&1 || { failed=1; cat output.txt; }
    echo "aarch64: $(basename "$test"): $(tail -1 output.txt)"
done
exit $failed
