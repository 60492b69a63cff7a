#!/bin/sh
# rerun.sh SOURCE_DIR: scripts/test.sh runs up to three entries that failed once
# more by themselves, counts their second outcome and lists them; more than three,
# or any with a sanitizer's report, fail as they are.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset TMSG_CI
cat > "$work/CMakeLists.txt" <<'END'
cmake_minimum_required(VERSION 3.18)
project(rerun NONE)
enable_testing()
set(seen ${PROJECT_BINARY_DIR}/seen)
add_test(NAME a/good COMMAND true)
add_test(NAME a/first COMMAND sh -c "test -d $0 || { mkdir $0; false; }" ${seen})
foreach(name IN LISTS BAD)
    add_test(NAME ${name} COMMAND sh -c "exit 1")
endforeach()
END

# expect CODE LAST_LINE BAD...: how test.sh ends where these fail each time
expect()
{
    code=$1
    line=$2
    shift 2
    bad=$(IFS=';'; echo "$*")
    rm -rf "$work/build"
    cmake -S "$work" -B "$work/build" -DBAD="$bad" > /dev/null
    rc=0
    JOBS=1 "$source/scripts/test.sh" "$work/build" > "$work/out" 2>&1 || rc=$?
    last=$(tail -n 1 "$work/build/test-summary.txt")
    if [ $rc -ne "$code" ] || [ "$last" != "$line" ]; then
        cat "$work/out"
        echo "exit $rc and '$last' where $code and '$line' were wanted" >&2
        exit 1
    fi
}

source=$1
expect 0 '2 passed, 0 failed, 0 skipped'
grep -qx 'failed beside others, then run alone: a/first' "$work/out"
expect 8 '2 passed, 1 failed, 0 skipped' bad
expect 8 '1 passed, 4 failed, 0 skipped' bad1 bad2 bad3
expect 8 '1 passed, 2 failed, 0 skipped' sanitizer/reports
