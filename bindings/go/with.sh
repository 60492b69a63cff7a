#!/bin/sh
# with.sh BUILD_DIR COMMAND...: runs a command, as `go test ./...`, with the library
# of a build folder, which need not be installed. cgo finds it by pkg-config.
set -eu
build=$(cd "$1" && pwd)
shift
source=$(cd "$(dirname "$0")/../.." && pwd)
mkdir -p "$build/go"
cat > "$build/go/tensormsg.pc.$$" <<EOF
Name: tensormsg
Description: the library of $build
Version: 0
Cflags: -I$source/include
Libs: -L$build -ltensormsg -Wl,-rpath,$build
EOF
mv "$build/go/tensormsg.pc.$$" "$build/go/tensormsg.pc"
# No module is fetched, no other toolchain, and nothing is told to anybody.
export PKG_CONFIG_PATH="$build/go" GOPROXY=off GOTOOLCHAIN=local GOTELEMETRY=off
exec "$@"
