# SPDX-License-Identifier: BSD-3-Clause
"""Dicts of arrays to another process and back, by this package, by its library
in C, and by what one would use instead, where it is installed. Prints a table of
half round trips in microseconds (the median), and what Python costs over C, and
by how much it is faster than others.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import threading
from typing import Any, Dict, List, NamedTuple, Tuple

import numpy as np

import tensormsg

from . import _bench_ways as ways
from ._bench_ways import ABOUT, APART, NEEDS, OURS, READY, THREADED, WAYS, Data

BEFORE = """
import importlib.util, os
os.environ.setdefault("UCXPY_PROGRESS_MODE", "polling")
if importlib.util.find_spec("libucx"):
    import libucx
    libucx.load_library()
import ucxx
from tensormsg import bench
bench.main()
"""


def lacks(way: str) -> str:
    """Why a way cannot be taken, in words; "": it can."""
    return "; ".join(
        f"there is no module {module}: pip install {package}"
        for module, package in NEEDS.get(way, {}).items()
        if not importlib.util.find_spec(module))


def program(way: str, *args: str) -> List[str]:
    return [sys.executable, *(("-c", BEFORE) if way in APART else
                              ("-m", "tensormsg.bench")), *args]


class Failed(Exception):
    """A way that was taken and led nowhere: why."""


def last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1] if lines else "it said nothing"


def end_with_parent() -> None:
    """Of the other process: when nobody holds its input any more."""
    def wait() -> None:
        while os.read(0, 1):  # not sys.stdin, which would be locked at exit
            pass
        os._exit(0)

    threading.Thread(target=wait, daemon=True).start()


def ask(way: str, place: str, data: Data, work: List[str]) -> float:
    """Seconds of a round trip, the median. `work`: the options that say so."""
    if way not in APART:
        try:
            if way not in THREADED:
                ways.bind()
            return statistics.median(WAYS[way][1](place, data))
        finally:
            os.sched_setaffinity(0, ways.CORES)
    ran = subprocess.run(
        program(way, "--ask", way, place, *work, "--seconds", str(ways.SECONDS),
                "--core", str(ways.core)),
        text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if ran.returncode != 0:
        raise Failed(f"its process ended: {last_line(ran.stderr)}")
    return float(ran.stdout.splitlines()[-1])


def measure(way: str, data: Data, work: List[str]) -> float:
    """Seconds of half a round trip. Raises Failed."""
    with tempfile.TemporaryDirectory() as folder, \
            open(f"{folder}/words", "w+", encoding="utf-8",
                 errors="replace") as words:
        place = f"unix://{folder}/socket"
        with subprocess.Popen(
                program(way, "--serve", way, place, "--core",
                        str(ways.CORES[1 % len(ways.CORES)])), text=True,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                stderr=words) as peer:
            assert peer.stdout is not None
            try:
                if f"{READY}\n" not in peer.stdout:
                    words.seek(0)
                    raise Failed("its other process ended: " +
                                 last_line(words.read()))
                return ask(way, place, data, work) / 2
            except (OSError, EOFError, ImportError) as error:
                raise Failed(f"{type(error).__name__}: {error}") from error
            finally:
                peer.kill()


def made(count: int, size: int) -> Data:
    return {f"tensor{i}": np.zeros(size, "u1") for i in range(count)}


def compare(took: Dict[str, float]) -> List[str]:
    """What Python costs over C, and by how much it is faster than others."""
    lines = []
    for way in "blocking", "asyncio":
        mine, said = took.get(way), []
        if mine is None:
            continue
        if "C" in took:
            said.append(f"{(mine - took['C']) * 1e6:.1f} us over C, "
                        f"{took['C'] / mine:.2f} of its speed")
        said += [f"{other / mine:.1f} times as fast as {name}"
                 for name, other in took.items() if name not in OURS]
        lines.append(f"{way}: " + "; ".join(said))
    return lines


def plot(rows: List[Dict[str, Any]], path: str) -> None:
    # Not pyplot, which may look for a screen.
    Figure: Any = importlib.import_module("matplotlib.figure").Figure
    figure = Figure()
    axes = figure.subplots()
    for way in dict.fromkeys(row["way"] for row in rows):
        mine = [row for row in rows if row["way"] == way]
        axes.plot([row["work"] for row in mine],
                  [row["half_round_trip_us"] for row in mine], "o-", label=way)
    axes.set(yscale="log", ylabel="half a round trip, us",
             xlabel="tensors x bytes")
    axes.tick_params(axis="x", rotation=45)
    axes.legend()
    figure.savefig(path, bbox_inches="tight")


def read_workload(path: str) -> Data:
    """The first map of a file as bench/workloads/ of the library has them."""
    with open(path, encoding="utf-8") as file:
        entries = json.load(file)["maps"][0]["tensors"]
    return {entry["name"].replace("{}", str(i)):
            np.zeros(entry["shape"], entry["dtype"])
            for entry in entries for i in range(entry.get("times", 1))}


class Workload(NamedTuple):
    path: str
    data: Data


def workload(path: str) -> Workload:
    try:
        return Workload(path, read_workload(path))
    except OSError as error:
        raise argparse.ArgumentTypeError(f"{path}: {error.strerror}") from None
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise argparse.ArgumentTypeError(
            f"{path}: no workload, which is JSON with maps[0].tensors, each "
            f"with name, dtype and shape: {type(error).__name__}: {error}"
        ) from None


def numbers(text: str) -> List[Tuple[int, int]]:
    if not re.fullmatch(r"([1-9]\d*x\d+)(,[1-9]\d*x\d+)*", text):
        raise argparse.ArgumentTypeError(f"{text}: not NxBYTES,...")
    return [(int(count), int(size)) for count, size in
            (one.split("x") for one in text.split(","))]


def names(text: str) -> List[str]:
    for name in text.split(","):
        if name not in WAYS:
            raise argparse.ArgumentTypeError(
                f"{name}: none of {', '.join(WAYS)}")
    return text.split(",")


def time_of(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1
    if not 0 < value < 3600:
        raise argparse.ArgumentTypeError(
            f"{text}: seconds are above 0 and below 3600")
    return value


def options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tensormsg.bench", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="ways:\n" + "\n".join(
            f"  {way:<15} {about}" + (
                f"\n{'':<18}(needs {', '.join(NEEDS[way].values())})"
                if way in NEEDS else "")
            for way, about in ABOUT.items()))
    parser.add_argument("--work", type=numbers, metavar="NxBYTES,...",
                        default="1x64,8x64,64x64,8x65536,8x2097152,8x33554432",
                        help="numbers of arrays, and bytes of each (%(default)s)")
    parser.add_argument("--workload", type=workload, metavar="FILE",
                        help="the first map of a workload file, in place of "
                        "--work")
    parser.add_argument("--ways", type=names, metavar="WAY,...",
                        help="which to take (all that are installed)")
    parser.add_argument("--seconds", type=time_of, default=ways.SECONDS,
                        help="to measure each for (%(default)s); five round "
                        "trips at least")
    parser.add_argument("--json", metavar="FILE", help="to write rows {way, work, "
                        "tensors, bytes_each, half_round_trip_us, gb_per_s, "
                        "cores}")
    parser.add_argument("--plot", metavar="FILE",
                        help="to draw, .png or .svg (needs matplotlib)")
    parser.add_argument("--serve", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--ask", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--core", type=int, help=argparse.SUPPRESS)
    return parser


def check(parser: argparse.ArgumentParser, args: argparse.Namespace) -> None:
    """What is mistaken is said before anything is measured."""
    if args.plot and not importlib.util.find_spec("matplotlib"):
        parser.error("--plot needs matplotlib: pip install matplotlib")
    if args.plot and not args.plot.endswith((".png", ".svg")):
        parser.error(f"--plot {args.plot}: neither .png nor .svg")
    for path in args.json, args.plot:
        if path and not os.access(os.path.dirname(path) or ".", os.W_OK):
            parser.error(f"{path}: no folder that can be written to")
    for way in args.ways or ():
        if lacks(way):
            parser.error(f"--ways {way}: {lacks(way)}")


def help_measure(args: argparse.Namespace) -> None:
    """As the process that another of these has started."""
    ways.core = args.core
    way, place = args.serve or args.ask
    if way not in THREADED:
        ways.bind()
    if args.serve:
        end_with_parent()
        WAYS[way][0](place)
        return
    times = WAYS[way][1](place, args.workload.data if args.workload else
                         made(*args.work[0]))
    print(statistics.median(times), flush=True)
    os._exit(0)  # in whatever state others' threads are


class Table:
    """Of what was measured: printed line by line."""

    def __init__(self, columns: List[str]) -> None:
        self.columns = columns
        self.rows: List[Dict[str, Any]] = []
        self.comparisons: List[str] = []
        self.failed = False
        print(f"{'tensors x bytes':>16}" +
              "".join(f"{way:>15}" for way in columns) +
              "   us, half a round trip; cores "
              f"{ways.CORES[0]} and {ways.CORES[1 % len(ways.CORES)]}",
              flush=True)

    def measure(self, label: str, data: Data, work: List[str]) -> None:
        total = sum(array.nbytes for array in data.values())
        took: Dict[str, float] = {}
        line = f"{label:>16}"
        for way in self.columns:
            try:
                took[way] = seconds = measure(way, data, work)
            except Failed as error:
                print(f"{label}, {way}: {error}", file=sys.stderr)
                self.failed = True
                line += f"{'-':>15}"
                continue
            self.rows.append({
                "way": way, "work": label, "tensors": len(data),
                "bytes_each": total / max(1, len(data)),
                "half_round_trip_us": seconds * 1e6,
                "gb_per_s": total / seconds / 1e9,
                "cores": [ways.CORES[0], ways.CORES[1 % len(ways.CORES)]]})
            line += f"{seconds * 1e6:15.1f}"
        print(line, flush=True)
        self.comparisons += [f"{label}, {said}" for said in compare(took)]


def run(args: argparse.Namespace) -> bool:
    """Whether all of it could be measured."""
    for way in [] if args.ways else [way for way in WAYS if lacks(way)]:
        print(f"{way} is left out: {lacks(way)}", file=sys.stderr)
    table = Table(args.ways or [way for way in WAYS if not lacks(way)])
    if args.workload:
        path, data = args.workload
        table.measure(os.path.basename(path), data, ["--workload", path])
    for count, size in () if args.workload else args.work:
        table.measure(f"{count} x {size}", made(count, size),
                      ["--work", f"{count}x{size}"])
    print("\n".join(table.comparisons))
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump({"info": tensormsg.info()["ucx"], "rows": table.rows},
                      file, indent=1)
    if args.plot:
        plot(table.rows, args.plot)
    return not table.failed


def main() -> None:
    parser = options()
    args = parser.parse_args()
    check(parser, args)
    ways.SECONDS = args.seconds
    try:
        if args.serve or args.ask:
            help_measure(args)
        elif not run(args):
            sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
