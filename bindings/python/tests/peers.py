# SPDX-License-Identifier: BSD-3-Clause
"""peers.py FOLDER: the comparison with what is installed, tensordict in FOLDER
and UCXX beside the tests' packages among it."""

import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tempfile


def main(folder):
    if pathlib.Path(folder).is_dir():
        os.environ["PYTHONPATH"] = folder
        sys.path.append(folder)
    wanted = {"C", "blocking", "asyncio", "pickle"}
    if importlib.util.find_spec("ucxx"):
        wanted |= {"UCXX"}
    if importlib.util.find_spec("tensordict"):
        wanted |= {"Pipe", "TensorDictPipe"} if "UCXX" in wanted else {"Pipe"}
    with tempfile.TemporaryDirectory() as there:
        rows = pathlib.Path(there, "rows.json")
        subprocess.run([sys.executable, "-m", "tensormsg.bench", "--work",
                        "8x64,8x33554432",
                        "--seconds", "1", "--json", rows],
                       check=True)
        rows = json.loads(rows.read_text())["rows"]
    assert {row["way"] for row in rows} >= wanted, rows
    assert all(row["half_round_trip_us"] > 0 for row in rows)


if __name__ == "__main__":
    main(sys.argv[1])
