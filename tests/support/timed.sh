#!/bin/bash
# timed.sh FILE COMMAND...: runs the command, and writes to FILE the seconds of a
# processor that it took in user mode and in the kernel, and those that passed.
file=$1
shift
TIMEFORMAT='seconds %U %S %R'
exec 3>&2
{ time "$@" 2>&3 3>&-; } 2> "$file"
