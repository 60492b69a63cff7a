#!/bin/sh
# seconds.sh BUILD_DIR [--update]: what the last run of the tests took, by rooms,
# and a warning for each entry of ctest that takes over a quarter (and a second)
# more of a processor than tests/seconds.txt says. --update writes that file.
# Machines differ in speed, and so do the hours of a shared one: what is compared
# is an entry's share of all that both know.
set -eu
build=$1
known=$(dirname "$0")/../tests/seconds.txt
[ "${2:-}" != --update ] || update=yes
kind=$(sed -n 's/^TMSG_SANITIZE:STRING=//p' "$build/CMakeCache.txt")

for file in "$build"/Testing/seconds/*; do
    [ -f "$file" ] || continue
    sed -n "s|^seconds|${file##*/}|p" "$file" | sed 's/:/\//'
done | LC_ALL=C sort > "$build/seconds.txt"

if [ -n "${update:-}" ]; then
    {
        sed -n '/^#/p' "$known"
        awk '$2 + $3 >= 0.5 { printf "%s %.1f\n", $1, $2 + $3 }' \
            "$build/seconds.txt"
    } > "$known.new"
    mv "$known.new" "$known"
fi
awk -v known="$known" -v plain="${kind:-yes}" '
FILENAME == known {
    if ($0 !~ /^(#|$)/) {
        then[$1] = $2
    }
    next
}
{
    room = $1
    sub(/\/.*/, "", room)
    now[$1] = $2 + $3
    count[room]++
    processor[room] += $2 + $3
    elapsed[room] += $4
    if (!(room in order)) {
        order[room] = ++rooms
        name[rooms] = room
    }
}
function row(room, count, processor, elapsed)
{
    printf "%-12s %7d %11.1f %9.1f\n", room, count, processor, elapsed
}
END {
    for (entry in now) {
        if (entry in then) {
            sum_now += now[entry]
            sum_then += then[entry]
        }
    }
    speed = sum_then > 0 ? sum_now / sum_then : 1
    for (entry in now) {
        is_known = entry in then
        expected = is_known ? then[entry] * speed : 0
        if (plain == "yes" && now[entry] > 1.25 * expected &&
            now[entry] > expected + 1) {
            printf "warning: %s took %.1f s of a processor, ", entry, now[entry]
            printf(is_known ? "%.1f were expected\n" \
                                 : "and is not in tests/seconds.txt\n",
                   expected)
        }
    }
    print "room         entries processor s elapsed s"
    for (i = 1; i <= rooms; i++) {
        row(name[i], count[name[i]], processor[name[i]], elapsed[name[i]])
        all_count += count[name[i]]
        all_processor += processor[name[i]]
        all_elapsed += elapsed[name[i]]
    }
    row("all", all_count, all_processor, all_elapsed)
}' "$known" "$build/seconds.txt"
