#!/bin/sh
# deb.sh [FOLDER]: builds the Debian packages of the commit that is checked out,
# into FOLDER (build/deb), and has lintian look at them. Takes debhelper, lintian
# and what debian/control names.
set -eu
cd "$(dirname "$0")/.."
out=${1:-build/deb}
rm -rf "$out"
mkdir -p "$out/source"
git archive HEAD | tar -x -C "$out/source"
(
    cd "$out/source"
    dpkg-checkbuilddeps
    dpkg-buildpackage --build=binary --no-sign -j"$(nproc)"
) > "$out/log" 2>&1 || {
    tail -30 "$out/log" >&2
    exit 1
}
rm -rf "$out/source"
# There is no address of the maintainers' yet, and no bug that it closes.
lintian --allow-root --fail-on error,warning --suppress-tags \
    bogus-mail-host,bogus-mail-host-in-debian-changelog,initial-upload-closes-no-bugs \
    "$out"/*.changes
ls -l "$out"/*.deb | awk '{print $5, $NF}'
