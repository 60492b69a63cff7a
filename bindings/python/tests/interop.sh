#!/bin/sh
# interop.sh FOLDER COMMAND...: runs it with the Python packages in that folder,
# torch, tensordict and jax, beside others; is skipped where there are none.
set -eu
if [ ! -d "$1" ]; then
    echo "SKIPPED: no torch in $1: make test-torch installs it"
    exit 77
fi
# One thread each: tests share the processors. Each import of torch takes
# seconds, on a busy machine a minute.
export PYTHONPATH="$1" OMP_NUM_THREADS=1 JAX_PLATFORMS=cpu \
    PYTEST_ADDOPTS='-o faulthandler_timeout=280'
shift
exec "$@"
