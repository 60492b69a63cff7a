#!/bin/sh
# demo.sh: starts a receiver and a sender as two processes and sends a tensor
# file from one to the other: $FILE, or the digits that ship with the project.
# Fails if what arrived is not what was sent.
set -eu
cd "$(dirname "$0")/.."
tensormsg=${BUILD:-build}/tensormsg
file=${FILE:-examples/data/digits.npz}
dir=$(mktemp -d "${TMPDIR:-/tmp}/tensormsg-demo.XXXXXX")
receiver=
trap '[ -z "$receiver" ] || kill "$receiver" 2> /dev/null || :
    rm -rf "$dir"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

"$tensormsg" recv --out "$dir/out" --count 1 --verbose > "$dir/received" &
receiver=$!
until [ -s "$dir/received" ]; do
    kill -0 "$receiver" 2> /dev/null || exit 1
    sleep 0.02
done
url=$(head -n 1 "$dir/received")
"$tensormsg" send --verbose "$url" "$file" > "$dir/sent" &
sender=$!
wait "$sender" || exit 1
wait "$receiver" || exit 1

echo "receiver  process $receiver, listening at $url"
echo "sender    process $sender, sending $file"
echo
kept=$dir/out/$(basename "$file")
sed 1,2d "$dir/sent" > "$dir/a"
sed 1,2d "$dir/received" > "$dir/b"
"$tensormsg" dump --table "$kept" > "$dir/c"
# Beside what was sent, the checksum of what arrived and of what was kept.
sed 's/.* //' "$dir/b" | paste -d ' ' "$dir/a" - > "$dir/ab"
sed 's/.* //' "$dir/c" | paste -d ' ' "$dir/ab" - |
    sed 's/ \(xxh3:[^ ]*\) \(xxh3:[^ ]*\) \(xxh3:[^ ]*\)$/ sent \1  received \2  in the file \3/'
echo
head -n 2 "$dir/sent"
receiver=
if ! cmp -s "$dir/a" "$dir/b" || ! cmp -s "$dir/a" "$dir/c"; then
    echo 'demo: what arrived is NOT what was sent' >&2
    exit 1
fi
echo "all $(wc -l < "$dir/a") tensors are equal: sent, received, and read" \
    "back from the file"
