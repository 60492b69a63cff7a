#!/bin/sh
# sanitize.sh address|thread [CTEST_OPTION...]: builds build/asan or build/tsan
# and runs its tests (scripts/test.sh); address is AddressSanitizer with UBSan and LeakSanitizer.
# sanitize.sh address|thread --races: runs all races of calls and of streams.
set -eu
cd "$(dirname "$0")/.."
kind=$1
shift
case $kind in
address)
    dir=build/asan
    unneeded=
    ;;
thread)
    dir=build/tsan
    unneeded='-DTMSG_BUILD_TOOLS=OFF -DTMSG_BUILD_EXAMPLES=OFF'
    ;;
*) echo 'usage: sanitize.sh address|thread' >&2; exit 2 ;;
esac

scripts/setup.sh build test
# Of debug information the lines, which is what a report names.
# shellcheck disable=SC2086 # words, each of them
cmake -S . -B $dir -G Ninja -DCMAKE_C_COMPILER=gcc -DTMSG_SANITIZE="$kind" \
    -DCMAKE_C_FLAGS_RELWITHDEBINFO='-O1 -g1 -DNDEBUG' $unneeded \
    -DTMSG_BUILD_TESTS=ON -DTMSG_BUILD_BENCH=OFF -DTMSG_WERROR=ON > /dev/null
if [ "${1:-}" = --races ]; then
    cmake --build $dir -j "$(nproc)" --target races
    exec ctest --test-dir $dir -C soak -L races --output-on-failure --verbose
fi
cmake --build $dir -j "$(nproc)"
# With one UCX: the other finds nothing more in our code and doubles the time.
exec scripts/test.sh $dir -LE ucx1.22 "$@"
