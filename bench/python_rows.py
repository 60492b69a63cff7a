# SPDX-License-Identifier: BSD-3-Clause
"""What a dict of arrays costs in Python over C: rows of `make bench`, of
`python -m tensormsg.bench`, each round new processes; they are added to the
file of the others."""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

METRICS = {"blocking": ("overhead_us", 8), "asyncio": ("overhead_asyncio_us", 15)}


def measure(folder, seconds):
    """Half a round trip in us, by way; and the cores."""
    out = pathlib.Path(folder, "rows.json")
    subprocess.run([sys.executable, "-m", "tensormsg.bench", "--work", "8x64",
                    "--ways", ",".join(["C", *METRICS]), "--seconds",
                    str(seconds), "--json", out], check=True,
                   stdout=subprocess.DEVNULL)
    rows = json.loads(out.read_text())["rows"]
    return ({row["way"]: row["half_round_trip_us"] for row in rows},
            ",".join(map(str, rows[0]["cores"])))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("json", type=pathlib.Path, metavar="FILE")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.6)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        measured = [measure(folder, options.seconds)
                    for _ in range(options.rounds)]
    rounds, cores = [times for times, _ in measured], measured[0][1]
    rows = json.loads(options.json.read_text())
    for way, (metric, limit) in METRICS.items():
        over = [times[way] - times["C"] for times in rounds]
        ours = statistics.median(over)
        rows.append({"work": "python_8x64B", "transport": "shm",
                     "metric": metric, "unit": "us", "ours": ours,
                     "limit": limit, "ratio": ours / limit,
                     "spread": None, "cores": cores, "runs": len(over)})
        print(f"{'python_8x64B':16} {'shm':4} {cores:5} {metric:19} "
              f"{ours:8.1f} {limit:8} {ours / limit:6.2f} {'-':>6} {'':13} "
              f"{'us':5} {len(over):4}  "
              f"{min(over):.1f}..{max(over):.1f}  asked for, over C")
    options.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
