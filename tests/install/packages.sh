#!/bin/sh
# packages.sh BUILD_DIR VERSION: installs the build into a folder of its own
# and builds a tiny program against it in each way the README names.
set -eu
build=$1
version=$2
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
prefix=$work/prefix

# expect HOW PROGRAM: it runs and prints the version
expect()
{
    got=$(LD_LIBRARY_PATH=$prefix_lib "$2")
    echo "$1: $got"
    [ "$got" = "$version" ] || {
        echo "$1: expected $version" >&2
        exit 1
    }
}

cmake --install "$build" --prefix "$prefix" > "$work/log"
prefix_lib=$(dirname "$(find "$prefix" -name libtensormsg.so)")
export PKG_CONFIG_PATH="$prefix_lib/pkgconfig"

cmake -S "$here/consumer" -B "$work/consumer" \
    -DCMAKE_PREFIX_PATH="$prefix" > "$work/log"
cmake --build "$work/consumer" > "$work/log" || {
    cat "$work/log"
    exit 1
}
expect 'CMake, shared' "$work/consumer/with_shared"
expect 'CMake, static' "$work/consumer/with_static"

# A program is bound to the minor release while the major one is 0.
case $version in
0.*) soname=libtensormsg.so.${version%.*} ;;
*) soname=libtensormsg.so.${version%%.*} ;;
esac
readelf -d "$work/consumer/with_shared" | grep -qF "[$soname]" || {
    echo "with_shared is not bound to $soname:" >&2
    readelf -d "$work/consumer/with_shared" | grep NEEDED >&2
    exit 1
}

# shellcheck disable=SC2046
gcc -o "$work/shared" "$here/consumer/main.c" \
    $(pkg-config --cflags --libs tensormsg)
expect 'pkg-config, shared' "$work/shared"

# Without the .so in the way, -ltensormsg means the archive.
mkdir "$work/archive"
cp "$prefix_lib/libtensormsg.a" "$work/archive"
# shellcheck disable=SC2046
gcc -o "$work/static" "$here/consumer/main.c" $(pkg-config --static \
    --define-variable=libdir="$work/archive" --cflags --libs tensormsg)
expect 'pkg-config, static' "$work/static"

# What the man page refers to is there.
doc=$prefix/share/doc/tensormsg
grep -oE 'docs/[a-z-]+\.md' "$prefix/share/man/man1/tensormsg.1" |
    sort -u | while read -r page; do
    [ -f "$doc/$page" ] || {
        echo "$doc/$page is missing" >&2
        exit 1
    }
done
echo "the documents are in $doc"

if [ -x "$prefix/bin/tensormsg" ]; then
    "$prefix/bin/tensormsg" --help > /dev/null
    echo 'the installed command runs'
fi
