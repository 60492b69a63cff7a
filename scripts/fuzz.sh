#!/bin/sh
# fuzz.sh [SECONDS]: runs every tests/fuzz/fuzz_x.c for SECONDS (60) each. What
# it learns stays in build/fuzz/corpus; a crash is written to build/fuzz, from
# where its input belongs into tests/fuzz/corpus/x.
set -eu
cd "$(dirname "$0")/.."
seconds=${1:-60}
dir=build/fuzz
ls tests/fuzz/fuzz_*.c > /dev/null 2>&1 || exit 0

scripts/setup.sh build fuzz
cmake -S . -B $dir -G Ninja -DCMAKE_C_COMPILER=clang -DTMSG_FUZZ=ON \
    -DTMSG_BUILD_TESTS=ON -DTMSG_BUILD_BENCH=OFF -DTMSG_BUILD_EXAMPLES=OFF \
    -DTMSG_BUILD_TOOLS=OFF > /dev/null
cmake --build $dir -j "$(nproc)"
for source in tests/fuzz/fuzz_*.c; do
    program=$(basename "$source" .c)
    name=${program#fuzz_}
    mkdir -p "$dir/corpus/$name"
    set -- "$dir/corpus/$name"
    [ ! -d "tests/fuzz/corpus/$name" ] || set -- "$@" "tests/fuzz/corpus/$name"
    echo "fuzz $name for $seconds s"
    "$dir/tests/fuzz/$program" -max_total_time="$seconds" -timeout=10 \
        -rss_limit_mb=2048 -verbosity=0 -print_final_stats=1 \
        -artifact_prefix="$dir/$name-" "$@"
done
