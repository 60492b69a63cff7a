# SPDX-License-Identifier: BSD-3-Clause
"""Log records that a peer can cause as often as it likes, as with each call
that fails: ten of a kind in 10 s, and then a count."""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time
from typing import Callable, Dict, Optional

RECORDS = 10  # of a kind, in an interval
INTERVAL_S = 10.

_log = logging.getLogger("tensormsg")


class _Kind:
    __slots__ = ("since", "records", "counted", "level")

    def __init__(self, since: float, level: int) -> None:
        self.since, self.records, self.counted = since, 0, 0
        self.level = level


class Often:
    """Counts the events that have no record. A timer tells how many there were
    when their interval is over."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.forget()

    def forget(self) -> None:
        """In the child of a process that was forked, too."""
        self._lock = threading.Lock()
        self._kinds: Dict[str, _Kind] = {}
        self._timer: Optional[threading.Timer] = None

    def may(self, kind: str, level: int = logging.ERROR) -> bool:
        """Whether an event of that kind may have a record. If not, it is
        counted; `kind` is what the count begins with, `level` that of its
        record."""
        now = self._clock()
        with self._lock:
            one = self._kinds.get(kind)
            if one is None or not one.counted and \
                    now - one.since >= INTERVAL_S:
                one = self._kinds[kind] = _Kind(now, level)
            if one.records < RECORDS:
                one.records += 1
                return True
            one.counted += 1
            if self._timer is None:
                self._set_timer(one.since + INTERVAL_S - now)
        return False

    def _set_timer(self, seconds: float) -> None:
        timer = threading.Timer(max(seconds, 0), self._expired)
        timer.daemon = True
        try:
            timer.start()
        except RuntimeError:
            return  # at the end of the interpreter, where at_exit() tells
        self._timer = timer

    def _expired(self) -> None:
        with self._lock:
            self._timer = None
        self.tell()

    def tell(self, everything: bool = False) -> None:
        """Logs the counts whose interval is over, or all of them."""
        now, said = self._clock(), []
        with self._lock:
            for kind, one in list(self._kinds.items()):
                passed = now - one.since
                if passed < INTERVAL_S and not everything:
                    if one.counted and self._timer is None:
                        self._set_timer(INTERVAL_S - passed)
                    continue
                if one.counted:
                    said.append((one.level, kind, one.counted,
                                 max(round(passed), 1)))
                del self._kinds[kind]
        for level, *words in said:
            _log.log(level, "%s %d more times in the last %d s", *words)


often = Often()
atexit.register(often.tell, True)
os.register_at_fork(after_in_child=often.forget)
