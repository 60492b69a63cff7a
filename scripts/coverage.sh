#!/bin/sh
# coverage.sh: runs the suite in build/coverage and writes index.html there.
set -eu
cd "$(dirname "$0")/.."
dir=build/coverage
scripts/setup.sh build test coverage
cmake -S . -B $dir -G Ninja -DCMAKE_C_COMPILER=gcc -DTMSG_COVERAGE=ON \
    -DTMSG_BUILD_TESTS=ON -DTMSG_BUILD_BENCH=OFF > /dev/null
cmake --build $dir -j "$(nproc)"
find $dir -name '*.gcda' -delete
ctest --test-dir $dir --output-on-failure -j "$(nproc)"
gcovr --root . --filter src/ --filter tools/ --print-summary \
    --html-details $dir/index.html $dir
