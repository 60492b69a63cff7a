#!/bin/sh
# makefile.sh SOURCE_DIR: what the Makefile hands on, with stubs for what it
# calls: a file name of any kind reaches the demo as it was typed, and targets
# run one after the other whatever -j says.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset MAKEFLAGS MAKELEVEL FILE
mkdir "$work/scripts" "$work/bin"
for stub in scripts/setup.sh scripts/demo.sh scripts/test.sh bin/cmake; do
    # Long enough for another one to begin before it ends.
    cat > "$work/$stub" <<'END'
#!/bin/sh
echo "${0##*/} begins" >> "$LOG"
sleep 0.1
echo "${0##*/} ends" >> "$LOG"
[ "${0##*/}" != demo.sh ] || printf '%s' "$FILE" > "$LOG.file"
END
    chmod +x "$work/$stub"
done
export LOG="$work/log" PATH="$work/bin:$PATH"

for file in "it's.npz" 'a b.npz' '$HOME `x`.npz' '"q".npz' '$(shell date).npz'
do
    make -s -C "$work" -f "$1/Makefile" demo FILE="$file"
    [ "$(cat "$LOG.file")" = "$file" ] || {
        echo "FILE='$file' came as '$(cat "$LOG.file")'" >&2
        exit 1
    }
done
rm "$LOG"
make -s -j 4 -C "$work" -f "$1/Makefile" demo test install
awk '$2 == "begins" { open++ } $2 == "ends" { open-- }
    open > 1 { print "two at once: " $0; exit 1 }' "$LOG"
