# SPDX-License-Identifier: BSD-3-Clause
"""Dicts of arrays to another process and back, by this package, by its library
in C, and by what one would use instead, where it is installed. Prints a table of
half round trips in microseconds (the median), and what Python costs over C, and
by how much it is faster than others.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import math
import os
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple

import numpy as np

import tensormsg

from . import _bench_ways as ways
from . import _plot
from ._bench_ways import (ABOUT, APART, FLOORS, NEEDS, OURS, READY, THREADED,
                          WAYS, Data)

MOST_PROCESSES = 100  # of a kind
LATE = 60.  # seconds beyond --seconds
SLOWEST = 50e6  # bytes a second

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


class Figures(NamedTuple):
    """Of one pair: seconds of a round trip, and how many a second."""
    median: float
    p99: float
    rate: float


def quantile(values: List[float], part: float) -> float:
    """The least value such that `part` of all are no greater, as the benches in
    C have it: tests/tools/figures.json."""
    return sorted(values)[math.ceil(part * len(values) - 1e-9) - 1]


def figures_of(times: List[float]) -> Figures:
    return Figures(statistics.median(times), quantile(times, .99),
                   len(times) / math.fsum(times))


class Helper:
    """A process that takes part in a way: serves, asks or computes."""

    def __init__(self, stack: contextlib.ExitStack, name: str, core: int,
                 *command: str) -> None:
        self.name = name
        self.late = 0.  # seconds after which it was killed; 0: it was not
        self.words = stack.enter_context(
            tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace"))
        where = [] if core < 0 else ["--core", str(core)]
        self.process = stack.enter_context(subprocess.Popen(
            [*command, *where], text=True, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=self.words))
        stack.callback(self.process.kill)

    def wait(self) -> None:
        """Until it says that it is ready."""
        assert self.process.stdout is not None
        if f"{READY}\n" not in self.process.stdout:
            self.fail()

    def tell(self, end: float) -> None:
        """It asks until then."""
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # result() says why
            self.process.stdin.write(f"{end}\n")
            self.process.stdin.flush()

    def result(self) -> Figures:
        assert self.process.stdout is not None
        said = self.process.stdout.read()
        if self.process.wait() != 0:
            self.fail()
        return Figures(*map(float, said.splitlines()[-1].split()))

    def give_up(self, late: float) -> None:
        self.late = late
        self.process.kill()

    def fail(self) -> None:
        self.process.wait()
        if self.late:
            raise Failed(f"{self.name} did not end in {self.late:.0f} s: it, or "
                         "the other one, hangs")
        self.words.seek(0)
        raise Failed(f"{self.name} ended: {last_line(self.words.read())}")


class Setting(NamedTuple):
    """How the processes share the processors."""
    cores: str
    pairs: int
    computing: int

    def bound(self) -> List[int]:
        """The cores of asker and server. Empty: any."""
        used = ways.CORES
        return {"apart": [used[0], used[1 % len(used)]], "one": used[:1],
                "any": []}[self.cores]

    def core(self, side: int) -> int:
        """Negative: any."""
        bound = self.bound()
        return bound[side % len(bound)] if bound else -1

    def about(self) -> str:
        bound = self.bound()
        said = "any core" if not bound else f"core {bound[0]}" \
            if self.cores == "one" else f"cores {bound[0]} and {bound[1]}"
        if self.pairs > 1:
            said += f"; {self.pairs} pairs at once, the slowest"
        if self.computing:
            said += f"; {self.computing} beside them only compute"
        return said


USUAL = Setting("apart", 1, 0)


def time_for(data: Data, setting: Setting) -> float:
    """The seconds in which a measurement ends, if no process hangs."""
    total: int = sum(array.nbytes for array in data.values())
    trips = 2 * (ways.FIRST + ways.LEAST)
    return ways.SECONDS + LATE + total * trips * setting.pairs / SLOWEST


def measure(way: str, work: List[str], setting: Setting,
            late: float) -> List[Figures]:
    """Of each pair. `work`: the options that say what is sent. After `late`
    seconds the processes are killed. Raises Failed."""
    with tempfile.TemporaryDirectory() as folder, \
            contextlib.ExitStack() as stack:
        helpers: List[Helper] = []

        def give_up() -> None:
            for helper in list(helpers):
                helper.give_up(late)

        timer = threading.Timer(late, give_up)
        timer.daemon = True
        timer.start()
        stack.callback(timer.cancel)
        places = [f"unix://{folder}/{i}" for i in range(setting.pairs)]
        servers = [Helper(stack, "its other process", setting.core(1),
                          *program(way, "--serve", way, place))
                   for place in places]
        helpers += servers
        for helper in servers:
            helper.wait()
        askers = [Helper(stack, "its process", setting.core(0),
                         *program(way, "--ask", way, place, *work))
                  for place in places]
        helpers += askers
        for helper in askers:
            helper.wait()
        computing = [Helper(stack, "a process that computes", setting.core(i),
                            *program("", "--compute"))
                     for i in range(setting.computing)]
        helpers += computing
        for helper in computing:
            helper.wait()
        end = time.monotonic() + ways.SECONDS
        for helper in askers:
            helper.tell(end)
        return [helper.result() for helper in askers]


def made(count: int, size: int) -> Data:
    return {f"tensor{i}": np.zeros(size, "u1") for i in range(count)}


def compare(took: Dict[str, float]) -> List[str]:
    """What Python costs over C, and by how much it is faster than others."""
    lines = []
    for way in "blocking", "asyncio", "background":
        mine, said = took.get(way), []
        if mine is None:
            continue
        if "C" in took:
            said.append(f"{(mine - took['C']) * 1e6:.1f} us over C, "
                        f"{took['C'] / mine:.2f} of its speed")
        said += [f"{other / mine:.1f} times as fast as {name}"
                 for name, other in took.items()
                 if name not in OURS and name not in FLOORS]
        if way == "background" and "wakes" in took:
            said.append(f"{mine / took['wakes']:.2f} of the time of wakes")
        if said:
            lines.append(f"{way}: " + "; ".join(said))
    return lines


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


def number_of(least: int) -> Callable[[str], int]:
    def number(text: str) -> int:
        if not re.fullmatch(r"\d{1,3}", text) or \
                not least <= int(text) <= MOST_PROCESSES:
            raise argparse.ArgumentTypeError(
                f"{text}: a number from {least} to {MOST_PROCESSES}")
        return int(text)

    return number


def options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tensormsg.bench", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="ways:\n" + "\n".join(
            f"  {way:<15} {about}" + (
                f"\n{'':<18}(needs {', '.join(NEEDS[way].values())})"
                if way in NEEDS else "")
            for way, about in ABOUT.items()))
    add_arguments(parser)
    parser.add_argument("--json", metavar="FILE", help="to write rows {way, work, "
                        "tensors, bytes_each, half_round_trip_us, p99_us, "
                        "gb_per_s, round_trips_per_s, pairs, computing, bound, "
                        "cores}")
    parser.add_argument("--plot", metavar="FILE",
                        help="to draw, .png, .svg or .pdf (needs matplotlib)")
    parser.add_argument("--serve", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--ask", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--compute", action="store_true",
                        help=argparse.SUPPRESS)
    parser.add_argument("--core", type=int, help=argparse.SUPPRESS)
    return parser


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Of what is measured."""
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
    parser.add_argument("--cores", choices=["apart", "one", "any"],
                        default=USUAL.cores,
                        help="apart: the two processes of a pair on a core "
                        "each; one: all processes on the first core; any: no "
                        "process is bound (%(default)s)")
    parser.add_argument("--pairs", type=number_of(1), metavar="N",
                        default=USUAL.pairs,
                        help="how many pairs of processes exchange at once; the "
                        "slowest is told (%(default)s)")
    parser.add_argument("--computing", type=number_of(0), metavar="N",
                        default=USUAL.computing,
                        help="how many processes compute beside them "
                        "(%(default)s)")


def fault(args: argparse.Namespace) -> Optional[str]:
    """What cannot be measured, in words."""
    for way in args.ways or ():
        if lacks(way):
            return f"--ways {way}: {lacks(way)}"
    return None


def check(parser: argparse.ArgumentParser, args: argparse.Namespace) -> None:
    """What is mistaken is said before anything is measured."""
    why = _plot.fault(args.plot) if args.plot else None
    if args.json and not os.access(os.path.dirname(args.json) or ".", os.W_OK):
        why = f"{args.json}: no folder that can be written to"
    why = why or fault(args)
    if why is not None:
        parser.error(why)


def help_measure(args: argparse.Namespace) -> None:
    """As a process that another of these has started."""
    ways.core = args.core
    way, place = args.serve or args.ask or ("", "")
    if way not in THREADED:
        ways.bind()
    ways.listen_to_parent()
    if args.compute:
        ways.compute()
    if args.serve:
        WAYS[way][0](place)
        return
    times = WAYS[way][1](place, args.workload.data if args.workload else
                         made(*args.work[0]))
    print(*figures_of(times), flush=True)
    os._exit(0)  # in whatever state others' threads are


class Table:
    """Of what was measured: printed line by line."""

    def __init__(self, columns: List[str], setting: Setting) -> None:
        self.columns = columns
        self.setting = setting
        self.rows: List[Dict[str, Any]] = []
        self.comparisons: List[str] = []
        self.failed = False
        print(f"{'tensors x bytes':>16}" +
              "".join(f"{way:>15}" for way in columns) +
              f"   us, half a round trip; {setting.about()}", flush=True)

    def measure(self, label: str, data: Data, work: List[str]) -> None:
        took: Dict[str, Dict[str, Any]] = {}
        for way in self.columns:
            try:
                pairs = measure(way, work, self.setting,
                                time_for(data, self.setting))
            except Failed as error:
                print(f"{label}, {way}: {error}", file=sys.stderr)
                self.failed = True
                continue
            took[way] = self.row(way, label, data, pairs)
        self.rows += took.values()
        self.line(label, took, "half_round_trip_us")
        if self.setting != USUAL:
            self.line("99 of 100 within", took, "p99_us")
            self.line("round trips/s", took, "round_trips_per_s")
        self.comparisons += [f"{label}, {said}" for said in compare(
            {way: row["half_round_trip_us"] / 1e6
             for way, row in took.items()})]

    def row(self, way: str, label: str, data: Data,
            pairs: List[Figures]) -> Dict[str, Any]:
        total = sum(array.nbytes for array in data.values())
        slowest = max(pairs)
        return {"way": way, "work": label, "tensors": len(data),
                "bytes_each": total / max(1, len(data)),
                "half_round_trip_us": slowest.median / 2 * 1e6,
                "p99_us": slowest.p99 / 2 * 1e6,
                "gb_per_s": total / (slowest.median / 2) / 1e9,
                "round_trips_per_s": sum(pair.rate for pair in pairs),
                "pairs": self.setting.pairs,
                "computing": self.setting.computing,
                "bound": self.setting.cores,
                "cores": self.setting.bound() or ways.CORES}

    def line(self, label: str, took: Dict[str, Dict[str, Any]],
             figure: str) -> None:
        print(f"{label:>16}" + "".join(
            f"{took[way][figure]:15.1f}" if way in took else f"{'-':>15}"
            for way in self.columns), flush=True)


def prepare(args: argparse.Namespace) -> None:
    ways.SECONDS = args.seconds
    if args.cores == "one":  # processes that are started inherit that
        ways.CORES = ways.CORES[:1]
        os.sched_setaffinity(0, ways.CORES)


def measure_all(args: argparse.Namespace) -> Table:
    for way in [] if args.ways else [way for way in WAYS if lacks(way)]:
        print(f"{way} is left out: {lacks(way)}", file=sys.stderr)
    table = Table(args.ways or [way for way in WAYS if not lacks(way)],
                  Setting(args.cores, args.pairs, args.computing))
    if args.workload:
        path, data = args.workload
        table.measure(os.path.basename(path), data, ["--workload", path])
    for count, size in () if args.workload else args.work:
        table.measure(f"{count} x {size}", made(count, size),
                      ["--work", f"{count}x{size}"])
    print("\n".join(table.comparisons))
    return table


def run(args: argparse.Namespace) -> bool:
    """Whether all of it could be measured."""
    table = measure_all(args)
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump({"info": tensormsg.info()["ucx"], "rows": table.rows},
                      file, indent=1)
    if args.plot:
        _plot.draw(table.rows, args.plot)
    return not table.failed


def main() -> None:
    parser = options()
    args = parser.parse_args()
    check(parser, args)
    prepare(args)
    try:
        if args.serve or args.ask or args.compute:
            help_measure(args)
        elif not run(args):
            sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
