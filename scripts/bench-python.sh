#!/bin/sh
# bench-python.sh BUILD_DIR FILE: measures the Python package of this tree and
# adds its rows to those of `make bench`. Without pip's packages there are none.
set -eu
cd "$(dirname "$0")/.."
venv=$1/bench-venv
[ -x "$venv/bin/pip" ] || python3 -m venv --clear "$venv"
"$venv/bin/python" -m pip --disable-pip-version-check -q install .
"$venv/bin/python" bench/python_rows.py "$2"
