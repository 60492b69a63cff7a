#!/bin/sh
# format.sh [--check]: formats every C file, or prints what would change and
# fails if anything would.
set -eu
cd "$(dirname "$0")/.."
scripts/setup.sh format

files=$(find include src tools examples bench tests bindings docs \
    -name '*.[ch]' 2> /dev/null | sort)
if [ "${1:-}" != --check ]; then
    # Twice: its first pass over a long trailing comment is not its last word.
    # shellcheck disable=SC2086
    clang-format-14 -i $files && clang-format-14 -i $files
    exit
fi
failed=0
for file in $files; do
    clang-format-14 "$file" | diff -u "$file" - || failed=1
done
[ $failed -eq 0 ] || echo "format: 'make format' mends it" >&2
exit $failed
