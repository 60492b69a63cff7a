#!/bin/sh
# packages.sh BUILD_DIR VERSION: installs the build into a folder of its own,
# and below DESTDIR as a packager does, and builds a tiny program against each
# in each way the README names.
set -eu
build=$1
version=$2
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
prefix=$work/prefix

fail()
{
    echo "$*" >&2
    exit 1
}

# A program is bound to the minor release while the major one is 0.
case $version in
0.*) soname=libtensormsg.so.${version%.*} ;;
*) soname=libtensormsg.so.${version%%.*} ;;
esac

# expect HOW shared|static PROGRAM: it runs and prints the version, and needs
# our shared library or does not
expect()
{
    needs=static
    if readelf --dynamic "$3" | grep -qF "[$soname]"; then
        needs=shared
    fi
    [ $needs = "$2" ] || fail "$1: the program is linked $needs"
    if [ "$2" = shared ]; then
        got=$(LD_LIBRARY_PATH=$lib "$3")
    else
        got=$(env -u LD_LIBRARY_PATH "$3")
    fi
    echo "$1, $2: $got"
    [ "$got" = "$version" ] || fail "$1: expected $version"
}

# build_all FOLDER: programs against the tree that is installed there
build_all()
{
    lib=$(dirname "$(find "$1" -name libtensormsg.so)")
    export PKG_CONFIG_PATH="$lib/pkgconfig"
    out=$(mktemp -d "$work/out.XXXXXX")
    {
        cmake -S "$here/consumer" -B "$out" -DCMAKE_PREFIX_PATH="$1" &&
            cmake --build "$out"
    } > "$work/log" 2>&1 || {
        cat "$work/log"
        exit 1
    }
    expect CMake shared "$out/with_shared"
    expect CMake static "$out/with_static"

    # shellcheck disable=SC2046
    gcc -o "$out/shared" "$here/consumer/main.c" \
        $(pkg-config --cflags --libs tensormsg)
    expect pkg-config shared "$out/shared"

    # Without the .so in the way, -ltensormsg means the archive.
    mkdir "$out/archive"
    cp "$lib/libtensormsg.a" "$out/archive"
    # shellcheck disable=SC2046
    gcc -o "$out/static" "$here/consumer/main.c" $(pkg-config --static \
        --define-variable=libdir="$out/archive" --cflags --libs tensormsg)
    expect pkg-config static "$out/static"

    if [ -x "$1/bin/tensormsg" ]; then
        "$1/bin/tensormsg" --help > /dev/null
        echo 'the installed command runs'
    fi
}

# First, so that a file that would land outside of the prefix is found here.
DESTDIR=$work/dest cmake --install "$build" --prefix /opt/tensormsg \
    > "$work/log"
[ "$(ls "$work/dest")" = opt ] || fail "beside the prefix: $(ls "$work/dest")"
build_all "$work/dest/opt/tensormsg"

env -u DESTDIR cmake --install "$build" --prefix "$prefix" > "$work/log"
diff -r "$prefix" "$work/dest/opt/tensormsg" ||
    fail 'DESTDIR installs something else'
build_all "$prefix"

# What the man page refers to is there.
doc=$prefix/share/doc/tensormsg
grep -oE 'docs/[a-z/-]+\.md' "$prefix/share/man/man1/tensormsg.1" |
    sort -u | while read -r page; do
    [ -f "$doc/$page" ] || fail "$doc/$page is missing"
done
echo "the documents are in $doc"
