#!/bin/sh
# bench-grpc.sh BUILD_DIR: installs Debian's gRPC for C++ and builds the peer of
# the rows calls_* there. Only `make bench` does; without it these rows have no
# peer.
set -eu
cd "$(dirname "$0")/.."
scripts/setup.sh build bench
cmake -S bench/grpc -B "$1" -G Ninja -DCMAKE_BUILD_TYPE=Release > /dev/null
cmake --build "$1"
