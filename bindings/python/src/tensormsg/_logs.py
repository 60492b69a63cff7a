# SPDX-License-Identifier: BSD-3-Clause
"""The library's log, and UCX's own output, in `logging`: loggers "tensormsg" and
"tensormsg.ucx"."""

from __future__ import annotations

import atexit
import logging
import math
import os
import sys
import threading
import traceback
from typing import Any

from ._lib import ffi, lib, text

_LEVELS = {lib.TMSG_LOG_ERROR: logging.ERROR, lib.TMSG_LOG_WARN: logging.WARNING,
           lib.TMSG_LOG_INFO: logging.INFO, lib.TMSG_LOG_DEBUG: logging.DEBUG}
_NAMED = {"error": logging.ERROR, "warn": logging.WARNING,
          "info": logging.INFO, "debug": logging.DEBUG}

_log = logging.getLogger("tensormsg")
_ucx = logging.getLogger("tensormsg.ucx")


def _level() -> int:
    """What the library is to tell: what the logger shows, where somebody sees
    it."""
    shown = _log.getEffectiveLevel() if _log.hasHandlers() else math.inf
    return max((level for level, here in _LEVELS.items() if here >= shown),
               default=int(lib.TMSG_LOG_NONE))


def complain() -> None:
    """Of what a handler or a filter of the application's raises just now: as
    `logging` does of its own handlers."""
    if logging.raiseExceptions and sys.stderr:
        traceback.print_exc()


def _tell(line: Any) -> None:
    try:
        _log_line(line)
    except Exception:
        complain()


def _log_line(line: Any) -> None:
    logger = _ucx if line.of_ucx else _log
    level = _LEVELS.get(line.level, logging.ERROR)
    if level < logging.WARNING and not logger.hasHandlers():
        # UCX_LOG_LEVEL asked for it; `logging` would drop it.
        print(text(line.text), file=sys.stderr)
    else:
        logger.log(level, "%s", text(line.text))
    if line.left_out:
        logger.warning("%d lines before this one were left out", line.left_out)


def _run() -> None:
    line = ffi.new("tmsgpy_line_t *")
    while lib.tmsgpy_log_next(1, line):
        _tell(line)


class _Lines:
    def __init__(self) -> None:
        # With TENSORMSG_LOG the library writes to standard error.
        wanted = os.environ.get("TENSORMSG_LOG")
        self._to_stderr = bool(wanted)
        self._says = _NAMED.get(wanted or "", logging.CRITICAL)
        self._taken = -1  # the level that the library was asked for
        self.forget()

    def forget(self) -> None:
        """In the child of a process that was forked."""
        self._lock = threading.Lock()
        self._started = False

    def follow(self) -> None:
        """Has the library tell what the loggers want now."""
        level = -1 if self._to_stderr else _level()
        if self._started and level == self._taken:
            return
        with self._lock:
            if not self._started:
                threading.Thread(target=_run, daemon=True,
                                 name="tensormsg-log").start()
                self._started = True
            lib.tmsgpy_log_take(level)
            self._taken = level
            if not self._to_stderr:
                self._says = _LEVELS.get(level, logging.CRITICAL)

    def says(self, level: int) -> bool:
        """Whether the library itself tells what is of that level, so that the
        package need not."""
        return level >= self._says

    def flush(self) -> None:
        """Tells what was not told yet, at exit."""
        if not self._started:
            return
        if not self._to_stderr:
            lib.tmsg_log_set(lib.TMSG_LOG_NONE, ffi.NULL, ffi.NULL)
        lib.tmsg_log_set_ucx(ffi.NULL, ffi.NULL)
        line = ffi.new("tmsgpy_line_t *")
        while lib.tmsgpy_log_next(0, line):
            _tell(line)


lines = _Lines()
atexit.register(lines.flush)
os.register_at_fork(after_in_child=lines.forget)
