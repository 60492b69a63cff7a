#!/bin/sh
# docs.sh BUILD_DIR: builds the documentation site as BUILD_DIR/docs/html, and
# looks through it (check.py). A warning of Doxygen's or Sphinx's fails it.
set -eu
cd "$(dirname "$0")/.."
mkdir -p "$1/docs"
out=$(cd "$1/docs" && pwd)
python=build/docs-venv/bin/python
[ -x "$python" ] && command -v doxygen > /dev/null &&
    command -v dot > /dev/null || {
    echo "docs.sh: scripts/setup.sh docs installs what this takes" >&2
    exit 1
}

# Every page is made anew: a page that is gone leaves nothing behind.
rm -rf "$out/xml" "$out/html"
{
    cat docs/site/Doxyfile
    echo "INPUT = include/tensormsg"
    echo "INPUT_FILTER = \"$python docs/site/header_filter.py\""
    echo "OUTPUT_DIRECTORY = \"$out\""
} | doxygen -
"$python" docs/site/assemble.py . "$out/source"
TMSG_SOURCE=$PWD TMSG_XML=$out/xml PYTHONDONTWRITEBYTECODE=1 \
    "$python" -m sphinx -q -W --keep-going -E -c docs/site -d "$out/doctrees" \
    -b html "$out/source" "$out/html"
"$python" docs/site/check.py "$out/html"
echo "$out/html/index.html"
