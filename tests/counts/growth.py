# SPDX-License-Identifier: BSD-3-Clause
"""growth.py PROGRAM...: what costs grow with. Runs the program with a folder as
its last argument under callgrind, which it tells when to count, by marks.c, and
fails where 4 times of what a peer sends cost more than 5.5 times as many
instructions, or 16 times more than 20 times."""

import collections
import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile

MOST = {4: 5.5, 16: 20.0}


def count(command):
    """Instructions by case and by times."""
    rows = collections.defaultdict(dict)
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            ["valgrind", "-q", "--tool=callgrind", "--instr-atstart=no",
             "--collect-atstart=no",
             f"--callgrind-out-file={folder}/out", *command, folder],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            env={**os.environ, "UCX_LOG_LEVEL": "error"})
        if done.returncode != 0:
            sys.exit(f"{command} ended with {done.returncode}:\n"
                     f"{done.stdout[-3000:]}")
        for path in glob.glob(folder + "/out.*"):
            with open(path, encoding="utf-8", errors="replace") as file:
                text = file.read()
            label = re.search("^desc: Trigger: Client Request: (.*);([0-9]+)$",
                              text, re.M)
            if label:
                rows[label[1]][int(label[2])] = int(
                    re.search("^totals: ([0-9]+)", text, re.M)[1])
    return rows


def main():
    if shutil.which("valgrind") is None:
        print("SKIPPED: there is no valgrind: scripts/setup.sh test installs it")
        return 77
    rows = count(sys.argv[1:])
    failed = len(rows) < 3
    for name, row in sorted(rows.items()):
        factors = {times: row.get(times, 0) / row[1] for times in MOST}
        wrong = any(not 0 < factors[times] <= MOST[times] for times in MOST)
        failed |= wrong
        print(f"{'FAILED' if wrong else 'ok':6} {name:24} {row[1]:12,}  " + ", ".join(
            f"x {times}: {factor:.1f}" for times, factor in factors.items()))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
