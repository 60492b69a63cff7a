#!/bin/sh
# fuzz.sh [SECONDS]: runs every tests/fuzz/fuzz_x.c for SECONDS (60) each, as many
# at a time as there are processors. What it learns stays in build/fuzz/corpus; a
# crash is written to build/fuzz, from where its input belongs into
# tests/fuzz/corpus/x.
# fuzz.sh runs=N: the inputs kept and then N more of one seed, at addresses that
# do not change: the same tree is told the same each time, which CI needs. A
# target with the line "fuzz: slow" in a comment does a tenth of that.
# fuzz.sh build: builds the targets, for tests/soak/soak_fuzz.py.
set -eu
cd "$(dirname "$0")/.."
case ${1:-60} in
runs=*)
    runs=${1#runs=}
    same='setarch -R'
    ;;
*)
    bound="-max_total_time=${1:-60}"
    same=
    ;;
esac
dir=build/fuzz
# What UCX leaves behind, as in the other runs of a sanitizer.
export LSAN_OPTIONS="suppressions=$PWD/tests/lsan.supp:print_suppressions=0"
ls tests/fuzz/fuzz_*.c > /dev/null 2>&1 || exit 0

# fuzz SOURCE: one of them, which says what it said when it has ended
fuzz()
{
    program=$(basename "$1" .c)
    name=${program#fuzz_}
    learned=$dir/corpus/$name
    if [ -n "$same" ]; then
        learned=$dir/same/$name
        rm -rf "$learned"
        # In so few runs an entropic choice of inputs finds no more edges than a
        # plain one, and takes half of fuzz/messages.
        bound="-runs=$runs -seed=1 -entropic=0"
        ! grep -q 'fuzz: slow' "$1" ||
            bound="-runs=$((runs / 10)) -seed=1 -entropic=0"
    fi
    mkdir -p "$learned"
    set -- "$learned"
    [ ! -d "tests/fuzz/corpus/$name" ] || set -- "$@" "tests/fuzz/corpus/$name"
    rc=0
    # shellcheck disable=SC2086 # words, each of them
    $same "$dir/tests/fuzz/$program" $bound -timeout=10 \
        -rss_limit_mb=2048 -verbosity=0 -print_final_stats=1 \
        -artifact_prefix="$dir/$name-" "$@" > "$dir/$name.log" 2>&1 || rc=$?
    echo "fuzz $name $bound"
    cat "$dir/$name.log"
    return $rc
}

if [ -n "${2:-}" ]; then
    fuzz "$2"
    exit
fi
scripts/setup.sh build fuzz
cmake -S . -B $dir -G Ninja -DCMAKE_C_COMPILER=clang -DTMSG_FUZZ=ON \
    -DCMAKE_C_FLAGS_RELWITHDEBINFO='-O1 -g1 -DNDEBUG' \
    -DTMSG_BUILD_TESTS=ON -DTMSG_BUILD_BENCH=OFF -DTMSG_BUILD_EXAMPLES=OFF \
    -DTMSG_BUILD_TOOLS=OFF > /dev/null
cmake --build $dir -j "$(nproc)"
[ "${1:-}" != build ] || exit 0
# Those that are slow begin first.
{
    grep -l 'fuzz: slow' tests/fuzz/fuzz_*.c
    grep -L 'fuzz: slow' tests/fuzz/fuzz_*.c
} | xargs -n 1 -P "$(nproc)" scripts/fuzz.sh "${1:-60}"
