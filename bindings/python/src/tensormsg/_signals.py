# SPDX-License-Identifier: BSD-3-Clause
"""SIGTERM and SIGINT, for what ends in order when the first of them comes."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from typing import Any, Dict, Optional

NUMBERS = signal.SIGTERM, signal.SIGINT
SAME_S = 0.1  # one so soon after the first is the same, sent to a group as well


class Caught:
    """In its block the first signal is noted; a further one ends the process at
    once. `loop`: the event loop that runs."""

    def __init__(self, loop: Optional[asyncio.AbstractEventLoop] = None
                 ) -> None:
        self._loop = loop
        self._before: Dict[signal.Signals, Any] = {}
        self._came_s = 0.0
        self.number: Optional[signal.Signals] = None  # of the first
        # For those who wait in the loop.
        self.came = None if loop is None else asyncio.Event()

    def __enter__(self) -> "Caught":
        if threading.current_thread() is not threading.main_thread():
            raise RuntimeError("run(grace=...) is for the main thread, in which "
                               "Python handles signals")
        for number in NUMBERS:
            self._before[number] = signal.getsignal(number)
            if self._loop is None:
                signal.signal(number, self._handle)
            else:
                self._loop.add_signal_handler(number, self._first, number)
        return self

    def __exit__(self, *why: object) -> None:
        self._leave_loop()
        for number, before in self._before.items():
            signal.signal(number, signal.SIG_DFL if before is None else before)

    def _leave_loop(self) -> None:
        if self._loop is not None:
            for number in NUMBERS:
                self._loop.remove_signal_handler(number)
            self._loop = None

    def _first(self, number: signal.Signals) -> None:
        """Called by the loop. A handler of calls may hold that up, which does
        not concern the second signal."""
        self._leave_loop()
        for each in NUMBERS:
            signal.signal(each, self._handle)
        self._note(number)

    def _note(self, number: signal.Signals) -> None:
        self.number = number
        self._came_s = time.monotonic()
        if self.came is not None:
            self.came.set()

    def _handle(self, number: int, frame: object) -> None:
        if self.number is None:
            self._note(signal.Signals(number))
        elif time.monotonic() - self._came_s >= SAME_S:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
