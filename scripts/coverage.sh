#!/bin/sh
# coverage.sh [CTEST_OPTION...]: runs the suite in build/coverage, writes
# index.html there and tells the coverage of each room. Fails where
# src/serialize, which reads what strangers write, has less than 95 % of its
# lines or of its branches, and where the CUDA domain, which no GPU tests here,
# has less than 90 % of its lines.
set -eu
cd "$(dirname "$0")/.."
dir=build/coverage
scripts/setup.sh build test
# Atomic, for threads count the same lines.
cmake -S . -B $dir -G Ninja -DCMAKE_C_COMPILER=gcc -DTMSG_COVERAGE=ON \
    -DCMAKE_C_FLAGS=-fprofile-update=atomic -DTMSG_BUILD_TESTS=ON \
    -DTMSG_BUILD_BENCH=OFF > /dev/null
cmake --build $dir -j "$(nproc)"
find $dir -name '*.gcda' -delete
# With one UCX: the other runs the same lines.
scripts/test.sh $dir -LE ucx1.22 "$@"
build/venv/bin/python -m gcovr --root . --filter src/ --filter tools/ \
    --html-details $dir/index.html --json-summary $dir/summary.json \
    $dir/src $dir/tools
build/venv/bin/python - $dir/summary.json <<'EOF'
import collections
import json
import os
import sys

LEAST = {"src/serialize": 95.0}  # per cent
LEAST_LINES = {"src/memory/cuda": 90.0}  # of the files that begin so
sums = collections.defaultdict(lambda: [0] * 4)
starts = collections.defaultdict(lambda: [0] * 2)
for file in json.load(open(sys.argv[1]))["files"]:
    keys = ("line_covered", "line_total", "branch_covered", "branch_total")
    for i, key in enumerate(keys):
        sums[os.path.dirname(file["filename"])][i] += file[key]
        for start in LEAST_LINES:
            if i < 2 and file["filename"].startswith(start):
                starts[start][i] += file[key]
failed = False
for room, (lines, all_lines, branches, all_branches) in sorted(sums.items()):
    shares = (100 * lines / all_lines,
              100 * branches / max(1, all_branches))
    print(f"{room:14} {shares[0]:5.1f} % of {all_lines:5} lines,"
          f" {shares[1]:5.1f} % of {all_branches:5} branches")
    if min(shares) < LEAST.get(room, 0):
        print(f"{room}: less than {LEAST[room]} %", file=sys.stderr)
        failed = True
for start, least in LEAST_LINES.items():
    share = 100 * starts[start][0] / max(1, starts[start][1])
    print(f"{start:14} {share:5.1f} % of {starts[start][1]:5} lines")
    if share < least:
        print(f"{start}: less than {least} %", file=sys.stderr)
        failed = True
print(f"see {os.path.dirname(sys.argv[1])}/index.html")
sys.exit(failed)
EOF
