#!/bin/bash
# release.sh [FOLDER]: all that a release consists of, of the commit that is
# checked out, in FOLDER (build/release): the source tarball, built twice and
# equal; wheels and the Python sources; Debian packages; a list of what they
# hold (SPDX); the notes; and the SHA-256 of each. docs/project/releases.md says
# how to
# publish it. Without TMSG_RELEASE_ANYWAY=1 nothing may be uncommitted.
set -euo pipefail
cd "$(dirname "$0")/.."
out=${1:-build/release}
if [ -n "$(git status --porcelain)" ] && [ -z "${TMSG_RELEASE_ANYWAY:-}" ]; then
    echo 'release.sh: there are changes that no commit has:' >&2
    git status --short >&2
    exit 1
fi
version=$(sed -n 's/^#define TMSG_VERSION_[A-Z]* //p' include/tensormsg/version.h |
    paste -sd .)
grep -q "^## $version" CHANGELOG.md || {
    echo "release.sh: CHANGELOG.md has no section $version" >&2
    exit 1
}
rm -rf "$out"
mkdir -p "$out"
out=$(realpath "$out")

# The commit's own time is that of all files, and no name or time is in gzip's
# header.
tarball()
{
    git archive --prefix="tensormsg-$version/" HEAD | gzip -9 -n > "$1"
}
tarball "$out/tensormsg-$version.tar.gz"
tarball "$out/again"
cmp "$out/tensormsg-$version.tar.gz" "$out/again"
rm "$out/again"

for arch in x86_64 aarch64; do
    scripts/wheel.sh $arch "$out/python"
done
scripts/wheel.sh sdist "$out/python"
scripts/deb.sh build/deb
cp build/deb/*.deb "$out"

sed -n "/^## $version/,/^## /{/^## /!p}" CHANGELOG.md > "$out/release-notes.md"

tools=build/release-venv
if ! cmp -s packaging/release-requirements.txt $tools/requirements.txt; then
    [ -x $tools/bin/pip ] || /usr/bin/python3 -m venv --clear $tools
    $tools/bin/python -m pip --disable-pip-version-check -q install \
        -r packaging/release-requirements.txt
    cp packaging/release-requirements.txt $tools/requirements.txt
fi
$tools/bin/python packaging/sbom.py "$version" "$out" \
    "$(git log -1 --format=%cI)"
$tools/bin/ntia-checker "$out"/*.spdx.json
$tools/bin/twine check --strict "$out"/python/*
cd "$out"
find . -type f ! -name SHA256SUMS -printf '%P\0' | sort -z |
    xargs -0 sha256sum -- > SHA256SUMS
find . -type f -printf '%s %P\n' | sort -k 2
