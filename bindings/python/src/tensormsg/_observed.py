# SPDX-License-Identifier: BSD-3-Clause
"""What a process tells of itself (tensormsg.describe), and what became of it from
one time to the next."""

from __future__ import annotations

import json
import math
import re
import time
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Tuple

from ._aio import Endpoint
from ._serve import health_of
from .errors import NotFound, Unsupported

DESCRIBE = "tensormsg.describe"
_SAMPLE = re.compile(r'(\w+)(?:\{(.*)\})? (\S+)\n?')
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_LINE_MOST = 4096  # characters: a name has 128 bytes
_ESCAPES = {r"\n": "\n", r"\\": "\\", r'\"': '"'}

Key = Tuple[str, str]  # side, and method


class Calls(NamedTuple):
    """Of one method, so far or in a time."""
    ended: float
    failed: float
    steps: Dict[float, float]  # how many took no longer, by seconds

    def less(self, before: Optional["Calls"]) -> "Calls":
        if before is None:
            return self
        return Calls(self.ended - before.ended, self.failed - before.failed,
                     {bound: count - before.steps.get(bound, 0)
                      for bound, count in self.steps.items()})

    def quantile(self, share: float) -> Optional[float]:
        """Seconds, as far as the steps tell; None: there was no call."""
        most = max(self.steps.values(), default=0)
        if not most:
            return None
        lower, below = 0., 0.
        for bound, count in sorted(self.steps.items()):
            if count >= share * most:
                if math.isinf(bound):
                    return lower
                part = (share * most - below) / max(count - below, 1)
                return lower + (bound - lower) * max(part, 0)
            lower, below = bound, count
        return lower


def _labels(text: str) -> Dict[str, str]:
    return {name: re.sub(r'\\[n\\"]', lambda it: _ESCAPES[it[0]], value)
            for name, value in _LABEL.findall(text)}


def calls_of(metrics: str) -> Dict[Key, Calls]:
    """Of Prometheus' text format."""
    made: Dict[Key, List[Any]] = {}
    for line in metrics.splitlines():
        match = None if line[:1] == "#" or len(line) > _LINE_MOST else \
            _SAMPLE.fullmatch(line)
        if match is None or match[2] is None:
            continue
        name, labels = match[1], _labels(match[2])
        of = made.setdefault(
            (labels.get("side", ""), labels.get("method", "")), [0., 0., {}])
        value = float(match[3])
        if name == "tensormsg_calls_total":
            of[0] += value
            of[1] += value * (labels.get("status") != "ok")
        elif name == "tensormsg_calls_rejected_total":
            of[1] += value
        elif name == "tensormsg_call_duration_seconds_bucket":
            of[2][float(labels["le"])] = value
    return {key: Calls(*of) for key, of in made.items()}


class Sample(NamedTuple):
    at_s: float
    process: Dict[str, Any]
    calls: Dict[Key, Calls]
    health: Optional[str]  # None: nobody serves there
    why: str

    @property
    def endpoints(self) -> List[Dict[str, Any]]:
        found: List[Dict[str, Any]] = self.process["endpoints"]
        return found

    @property
    def publishers(self) -> List[Dict[str, Any]]:
        found: List[Dict[str, Any]] = self.process["publishers"]
        return found


async def ask(ep: Endpoint, timeout: float) -> Sample:
    """What the peer tells at this time. Raises Unsupported where it is an older
    one."""
    try:
        told = await ep.call(DESCRIBE, timeout=timeout)
    except (NotFound, Unsupported) as error:
        raise Unsupported(
            f"{error.reason}: the peer's library is older, and tells nothing of "
            "itself", error.status, ep.peer) from None
    health = health_of(told) if "health" in told.meta else None
    return Sample(time.monotonic(), json.loads(told["process"].tobytes()),
                  calls_of(told["metrics"].tobytes().decode()),
                  None if health is None else str(health),
                  "" if health is None else health.why)


def _number(of: Mapping[str, Any], key: str) -> float:
    return float(of.get(key, 0))


def _rates(now: Mapping[str, Any], before: Optional[Mapping[str, Any]],
           keys: Tuple[str, ...], seconds: float) -> Dict[str, float]:
    """By the second; 0 for what was not there before."""
    return {key: 0. if before is None else
            max(_number(now, key) - _number(before, key), 0) / seconds
            for key in keys}


ENDPOINT = ("sent_messages", "sent_bytes", "received_messages", "received_bytes",
            "dropped_messages", "lost_messages", "refused_messages")
SUBSCRIBER = "delivered", "dropped", "failed"


def compare(now: Sample, before: Sample) -> Dict[str, Any]:
    """All that is shown: figures of the moment, and in "a_second" how much they
    grow."""
    seconds = max(now.at_s - before.at_s, 1e-9)
    old = {one["id"]: one for one in before.endpoints}
    endpoints = [{**one, "a_second": _rates(one, old.get(one["id"]), ENDPOINT,
                                            seconds)} for one in now.endpoints]
    publishers = []
    for number, one in enumerate(now.publishers):
        was = before.publishers[number] if number < len(before.publishers) \
            else None
        were = {it["id"]: it for it in was["subscribers"]} if was else {}
        publishers.append({
            **one, "a_second": _rates(one, was, ("published", *SUBSCRIBER),
                                      seconds),
            "subscribers": [
                {**it, "a_second": _rates(it, were.get(it["id"]), SUBSCRIBER,
                                          seconds)}
                for it in one["subscribers"]]})
    calls = []
    for (side, method), counts in sorted(now.calls.items(),
                                         key=lambda it: it[0][::-1]):
        lately = counts.less(before.calls.get((side, method)))
        calls.append({
            "side": side, "method": method, "ended": counts.ended,
            "failed": counts.failed,
            "p50_s": lately.quantile(.5), "p99_s": lately.quantile(.99),
            "a_second": {"ended": lately.ended / seconds,
                         "failed": lately.failed / seconds}})
    return {"pid": now.process["pid"], "version": now.process["version"],
            "health": now.health, "why": now.why, "seconds": seconds,
            "worker": now.process["worker"], "endpoints": endpoints,
            "more_endpoints": now.process["more_endpoints"],
            "publishers": publishers,
            "more_publishers": now.process.get("more_publishers", 0), "calls": calls}
