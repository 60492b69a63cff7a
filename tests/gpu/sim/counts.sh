#!/bin/sh
# counts.sh FILE: what the simulated driver counted (SIM_CUDA_COUNTS), by name.
set -eu
here=$(dirname "$0")
sed -n 's/^    COUNT(\([a-z_]*\)).*/\1/p' "$here/sim.h" > "$1.names"
od -An -v -t d8 -w8 "$1" | tr -d ' ' | paste -d' ' "$1.names" -
rm "$1.names"
