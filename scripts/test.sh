#!/bin/sh
# test.sh BUILD_DIR [CTEST_OPTION...]: runs the tests of a build, then lists
# each test that was skipped with its reason, and the counts. ctest shows
# nothing of an entry that passes, so a skip inside of one is else never seen.
# Tests wait for much of their time: six run at once on two processors ($JOBS).
# Where up to three entries failed, each is run once more with nothing beside it,
# and passes if that does: it is listed, and what it printed first is kept beside
# the log.
# Nothing is run again where a sanitizer reported anything.
# In CI ($TMSG_CI) a skip that tests/allowed-skips.txt does not have fails.
set -eu
build=$1
shift
allowed=$(dirname "$0")/../tests/allowed-skips.txt
log=$build/Testing/Temporary/LastTest.log
failures=$build/Testing/Temporary/LastTestsFailed.log
rm -f "$log" "$failures" "$log.beside" "$build"/Testing/seconds/*
rc=0
jobs=${JOBS:-$(nproc)}
ctest --test-dir "$build" --output-on-failure -j $((jobs * 3)) "$@" ||
    rc=$?
[ -f "$log" ] || exit "$((rc ? rc : 1))"

again=
if [ $rc -eq 8 ] && [ -s "$failures" ] && [ "$(wc -l < "$failures")" -le 3 ] &&
    ! grep -q ':sanitizer/reports$' "$failures"; then
    again=$(cut -d: -f2- "$failures" | paste -sd ' ' -)
    echo "== once more, with nothing beside: $again"
    mv "$log" "$log.beside"
    rc=0
    ctest --test-dir "$build" --output-on-failure --rerun-failed || rc=$?
    # One log: what was run again counts by its second outcome.
    awk '/^[0-9]+\/[0-9]+ Testing: / { is_again = FNR < NR && $3 in again }
        FNR == NR { if ($2 == "Testing:") again[$3]; next }
        !is_again' "$log" "$log.beside" > "$log.first"
    cat "$log" >> "$log.first"
    mv "$log.first" "$log"
fi

kind=$(sed -n 's/^TMSG_SANITIZE:STRING=//p' "$build/CMakeCache.txt")
echo
AGAIN=$again awk -v kind="${kind:-plain}" -v allowed="$allowed" '
function glob(text)
{
    gsub(/[].+?(){}|^$\\[]/, "\\\\&", text)
    gsub(/\*/, ".*", text)
    return "^" text "$"
}
function is_allowed(test,    i)
{
    for (i = 1; i <= lines; i++) {
        if ((kinds[i] == "any" || kinds[i] == kind) &&
            entry ~ entries[i] && test ~ tests[i]) {
            return 1
        }
    }
    return 0
}
# Once for all parameters of a test: [SKIP] of Criterion, SKIPPED of pytest
function skip(test, why)
{
    sub(/\[.*/, "", test)
    sub(/^ *(Skipped: )?/, "", why)
    line = entry (test == "*" ? "" : ": " test) ": " why
    if (!(line in times)) {
        order[++kept] = line
        known[line] = is_allowed(test)
    }
    times[line]++
    here++
    skipped++
    unknown += !known[line]
}
function end_entry()
{
    if (entry == "") {
        return
    }
    if (said != "") {
        skip("*", said)
    } else if (outcome == "passed" && counts && here + ran == 0) {
        skip("*", "it ran no test")
    } else if (!counts) { # a program is one test
        passed += outcome == "passed"
        failed += outcome != "passed"
    } else if (outcome == "failed" && failed == failed_before) {
        failed++ # it ended before it could count
    }
}
FILENAME == allowed {
    if ($0 !~ /^(#|$)/) {
        kinds[++lines] = $1
        entries[lines] = glob($2)
        tests[lines] = glob($3)
    }
    next
}
/^[0-9]+\/[0-9]+ Testing: / {
    end_entry()
    entry = $3
    outcome = "failed"
    here = ran = counts = 0
    said = ""
    failed_before = failed
}
/^SKIPPED: / { said = substr($0, 10) }
/^\[SKIP\] / {
    sub(/^\[SKIP\] [^:]*::/, "")
    skip(substr($0, 1, index($0, ": ") - 1), substr($0, index($0, ": ") + 2))
}
/^SKIPPED .*::.* - / {
    sub(/^SKIPPED [^:]*::/, "")
    skip(substr($0, 1, index($0, " - ") - 1), substr($0, index($0, " - ") + 3))
}
# tested, passing, failing and of these crashing, in the words of the locale
/^\[====\] .*: [0-9]+ \| .*: [0-9]+ \| .*: [0-9]+ \| .*: [0-9]+ *$/ {
    split($0, part, "|")
    for (i in part) {
        sub(/.*: /, "", part[i])
    }
    counts = 1
    ran += part[1]
    passed += part[2]
    failed += part[3]
}
/^([0-9]+ [a-z]+, )*[0-9]+ [a-z]+ in [0-9.]+s/ || /^no tests ran in / {
    counts = 1
    for (i = 1; $i != "in"; i += 2) {
        if ($(i + 1) ~ /^passed|^xfailed/) {
            passed += $i
            ran += $i
        } else if ($(i + 1) ~ /^failed|^error|^xpassed/) {
            failed += $i
            ran += $i
        } else if ($i == "no") {
            break
        }
    }
}
/^Test (Passed[.]|Pass Reason:)$/ { outcome = "passed" } # a skipped one, too
END {
    end_entry()
    for (i = 1; i <= kept; i++) {
        line = order[i]
        note = known[line] ? "" : ", not allowed in CI"
        if (times[line] > 1) {
            note = ", " times[line] " times" note
        }
        print "skipped" note ": " line
    }
    if (ENVIRON["AGAIN"] != "") {
        print "failed beside others, then run alone: " ENVIRON["AGAIN"]
    }
    printf "%d passed, %d failed, %d skipped", passed, failed, skipped
    if (unknown) {
        printf " (%d not in tests/allowed-skips.txt)", unknown
    }
    print ""
    exit (unknown && ENVIRON["TMSG_CI"] != "") ? 3 : 0
}' "$allowed" "$log" > "$build/test-summary.txt" || skips=$?
"$(dirname "$0")"/seconds.sh "$build"
cat "$build/test-summary.txt"
[ $rc -ne 0 ] || rc=${skips:-0}
exit "$rc"
