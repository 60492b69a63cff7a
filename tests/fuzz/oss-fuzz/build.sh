#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# build.sh: builds all fuzz targets as OSS-Fuzz wants it, from the folder of the
# sources. It sets CC, CXX, CFLAGS, CXXFLAGS, LIB_FUZZING_ENGINE, WORK and OUT.
# Each tests/fuzz/fuzz_x.c becomes $OUT/fuzz_x, with what is kept in corpus/x/ as
# $OUT/fuzz_x_seed_corpus.zip. The targets run where nothing is installed: the
# libraries that they need lie in $OUT/lib.
#
# By hand:
#   mkdir -p /tmp/out /tmp/work
#   CC=clang CXX=clang++ CFLAGS='-O1 -g -fsanitize=address,fuzzer-no-link' \
#       CXXFLAGS="$CFLAGS" LIB_FUZZING_ENGINE=-fsanitize=fuzzer \
#       WORK=/tmp/work OUT=/tmp/out tests/fuzz/oss-fuzz/build.sh
set -euo pipefail
build=$WORK/tensormsg

# The engine may be a library in C++, so its compiler links.
cmake -S . -B "$build" -G Ninja -DTMSG_FUZZ=ON \
    -DTMSG_FUZZ_ENGINE="$LIB_FUZZING_ENGINE" \
    -DCMAKE_C_COMPILER="$CC" -DCMAKE_C_FLAGS="$CFLAGS" \
    -DCMAKE_C_FLAGS_RELWITHDEBINFO=-DNDEBUG \
    -DCMAKE_C_LINK_EXECUTABLE="$CXX $CXXFLAGS <LINK_FLAGS> <OBJECTS> -o <TARGET> <LINK_LIBRARIES>" \
    -DCMAKE_EXE_LINKER_FLAGS="-Wl,--disable-new-dtags,-rpath,'\$ORIGIN/lib'" \
    -DCMAKE_SKIP_RPATH=ON -DTMSG_BUILD_TESTS=ON -DTMSG_BUILD_BENCH=OFF \
    -DTMSG_BUILD_EXAMPLES=OFF -DTMSG_BUILD_TOOLS=OFF -DTMSG_INSTALL=OFF
targets=()
for source in tests/fuzz/fuzz_*.c; do
    targets+=("$(basename "$source" .c)")
done
cmake --build "$build" -j "$(nproc)" --target "${targets[@]}"

mkdir -p "$OUT/lib"
for target in "${targets[@]}"; do
    cp "$build/tests/fuzz/$target" "$OUT/"
    # glibc and the runtimes of the compiler are there already.
    ldd "$OUT/$target" | awk '$2 == "=>" && $3 ~ /^\// { print $3 }' |
        grep -Ev '/lib(c|m|dl|rt|pthread|gcc_s|stdc\+\+|c\+\+|c\+\+abi)\.so' |
        xargs -r cp -L -n -t "$OUT/lib"
    corpus=tests/fuzz/corpus/${target#fuzz_}
    [ ! -d "$corpus" ] || zip -q -j -r - "$corpus" > "$OUT/${target}_seed_corpus.zip"
done
