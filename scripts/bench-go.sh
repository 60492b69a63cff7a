#!/bin/sh
# bench-go.sh BUILD_DIR FILE: measures the Go package of this tree and adds its
# rows to those of `make bench`. Without build/go-venv there are none.
set -eu
cd "$(dirname "$0")/.."
go=$PWD/build/go-venv/go/bin/go
[ -x "$go" ] || exit 1
GOCACHE=$PWD/build/go-venv/cache GOPATH=$PWD/build/go-venv/path \
    bindings/go/with.sh "$1" "$go" build -C bench/go -o "$PWD/$1/go/bench" .
build/venv/bin/python bench/go_rows.py "$1/go/bench" "$2"
