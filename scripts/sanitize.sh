#!/bin/sh
# sanitize.sh address|thread [CTEST_OPTION...]: builds build/asan or build/tsan
# and runs its tests (scripts/test.sh); address is AddressSanitizer with UBSan and LeakSanitizer.
set -eu
cd "$(dirname "$0")/.."
kind=$1
shift
case $kind in
address) dir=build/asan ;;
thread) dir=build/tsan ;;
*) echo 'usage: sanitize.sh address|thread' >&2; exit 2 ;;
esac

scripts/setup.sh build test
cmake -S . -B $dir -G Ninja -DCMAKE_C_COMPILER=gcc -DTMSG_SANITIZE="$kind" \
    -DTMSG_BUILD_TESTS=ON -DTMSG_BUILD_BENCH=OFF -DTMSG_WERROR=ON > /dev/null
cmake --build $dir -j "$(nproc)"
# With one UCX: the other finds nothing more in our code and doubles the time.
exec scripts/test.sh $dir -LE ucx1.22 "$@"
