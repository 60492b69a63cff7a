#!/bin/sh
# reports.sh FOLDER: prints the sanitizers' reports there and fails if there is
# one. A frame that is "(FILE+OFFSET)" only gets the function and the line.
set -eu
[ -n "$(ls -A "$1" 2> /dev/null)" ] || exit 0
cat "$1"/* | while IFS= read -r line; do
    printf '%s\n' "$line"
    case $line in
    *'#'[0-9]*' 0x'*' ('/*'+0x'*')'*) ;;
    *) continue ;;
    esac
    where=${line#*' ('}
    where=${where%%')'*}
    addr2line -spfiC -e "${where%+*}" "${where##*+}" 2> /dev/null |
        sed '/^??/d; s/^/         /' || true
done
exit 1
