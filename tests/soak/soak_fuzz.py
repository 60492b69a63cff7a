# SPDX-License-Identifier: BSD-3-Clause
"""Every target of tests/fuzz to 10^7 executions (one with the line "fuzz: slow"
to 10^5), and on until a quarter of that has reached nothing new.

    soak_fuzz.py [TARGET...]    these alone; $TMSG_FUZZ_RUNS in place of 10^7

It goes in slices, each with a seed of its own. After each, the counts are kept
in $TMSG_SOAK_STATE/fuzz.json and the inputs in build/fuzz/corpus, as for `make
fuzz`: a run that was stopped goes on. An input that fails is kept as
build/fuzz/TARGET-crash-...; it is an open finding until it fails no more."""
import concurrent.futures
import glob
import json
import os
import pathlib
import re
import subprocess
import sys
import threading
import time

SOURCE = pathlib.Path(os.environ.get("TMSG_SOURCE_DIR") or
                      pathlib.Path(__file__).parents[2])
FOLDER = SOURCE / "build/fuzz"
KEPT = pathlib.Path(os.environ.get("TMSG_SOAK_STATE", ".")) / "fuzz.json"
SEED = int(os.environ.get("TMSG_SOAK_SEED", 20261129))
RUNS = int(os.environ.get("TMSG_FUZZ_RUNS", 10_000_000))
SLOW = 100         # times as slow
SLICES = 40        # at least
SLICE_SECONDS = 60  # at most
LONGEST = 10       # times RUNS: then there is no plateau
OPTIONS = ["-timeout=10", "-rss_limit_mb=2048", "-print_final_stats=1",
           "-max_total_time=%d" % SLICE_SECONDS]
LSAN = f"suppressions={SOURCE}/tests/lsan.supp:print_suppressions=0"

lock = threading.Lock()


class Target:
    """One program, and how far it is."""

    def __init__(self, name, kept):
        self.name = name
        self.program = FOLDER / f"tests/fuzz/fuzz_{name}"
        text = (SOURCE / f"tests/fuzz/fuzz_{name}.c").read_text()
        self.runs = RUNS // SLOW if "fuzz: slow" in text else RUNS
        self.slices = kept.get("slices", 0)
        self.executions = kept.get("executions", 0)
        self.coverage = kept.get("coverage", 0)   # edges
        self.grew_at = kept.get("grew_at", 0)     # executions
        self.seconds = kept.get("seconds", 0)

    def kept(self):
        return {word: getattr(self, word) for word in (
            "slices", "executions", "coverage", "grew_at", "seconds")}

    def run(self, *words):
        return subprocess.run(
            [self.program, *OPTIONS, *words], text=True, errors="replace",
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            env={**os.environ, "LSAN_OPTIONS": LSAN})

    def findings(self):
        """Inputs that fail still; those that do no more are let go of."""
        kinds = "crash", "leak", "timeout", "oom"
        found = [path for kind in kinds for path in
                 glob.glob(f"{FOLDER}/{self.name}-{kind}-*")]
        for path in found:
            if self.run(path).returncode == 0:
                os.remove(path)
        return [path for path in found if os.path.exists(path)]

    def is_flat(self):
        return self.executions - self.grew_at >= self.runs // 4

    def is_over(self):
        return self.executions >= self.runs and self.is_flat() or \
            self.executions >= LONGEST * self.runs

    def slice(self):
        learned = FOLDER / "corpus" / self.name
        given = SOURCE / "tests/fuzz/corpus" / self.name
        learned.mkdir(parents=True, exist_ok=True)
        since = time.monotonic()
        done = self.run(f"-runs={max(1, self.runs // SLICES)}",
                        f"-seed={(SEED + self.slices) % 2**31}",
                        f"-artifact_prefix={FOLDER}/{self.name}-", learned,
                        *([given] if given.exists() else []))
        count = re.search(r"number_of_executed_units: *(\d+)", done.stdout)
        if count is None or done.returncode != 0:
            print(done.stdout[-20000:], flush=True)
            return False
        edges = max(map(int, re.findall(r" cov: (\d+)", done.stdout)),
                    default=0)
        self.slices += 1
        self.executions += int(count[1])
        self.seconds += round(time.monotonic() - since)
        if edges > self.coverage:
            self.coverage, self.grew_at = edges, self.executions
        return True

    def line(self, findings):
        flat = "flat" if self.is_flat() else "it still grew"
        return (f"{self.name}: {self.executions} executions in "
                f"{self.slices} slices from seed {SEED}, {self.seconds} s; "
                f"{self.coverage} edges, the last after {self.grew_at} "
                f"({flat}); {len(findings)} findings")


def soak(target, targets):
    """Whether it found nothing, and reached its plateau."""
    findings = target.findings()
    while not findings and not target.is_over():
        if not target.slice():
            findings = target.findings()
            if not findings:  # it failed, and did not again
                findings = ["a slice that failed"]
        with lock:
            KEPT.with_suffix(".new").write_text(json.dumps(
                {each.name: each.kept() for each in targets}, indent=1))
            KEPT.with_suffix(".new").replace(KEPT)
    print(target.line(findings), *findings, sep="\n  ", flush=True)
    return not findings and target.is_flat()


def main(names):
    subprocess.run([SOURCE / "scripts/fuzz.sh", "build"], check=True)
    kept = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    all_names = sorted(path.stem.removeprefix("fuzz_") for path in
                       (SOURCE / "tests/fuzz").glob("fuzz_*.c"))
    targets = [Target(name, kept.get(name, {})) for name in all_names]
    chosen = [each for each in targets if not names or each.name in names]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        good = list(pool.map(lambda each: soak(each, targets), chosen))
    print(f"{sum(each.executions for each in chosen)} executions of "
          f"{len(chosen)} targets")
    if all(good) and chosen == targets:
        KEPT.unlink()  # the next one begins anew, with what was learned
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
