# SPDX-License-Identifier: BSD-3-Clause
"""What calls and fetches that were started have in common."""

from __future__ import annotations

from typing import Any, Callable, Optional

from ._hub import Posted
from ._lib import hot
from ._stays import Stays
from .context import check_process
from .errors import Status, error_of


class BaseCall(Stays):
    """A call, or a fetch, that goes on."""

    _instead = "wait for it here; its message can be pickled"

    def __init__(self, endpoint: Any, op: Any, posted: Optional[Posted],
                 what: str, asks: bool, take: Callable[..., Any]) -> None:
        """`what` in words; `asks`: it ends when a handler has run; `take`
        returns the reply to the operation."""
        self._endpoint = endpoint
        self._op = op
        self._posted = posted
        self._what = what
        self._asks = asks
        self._take = take
        self._message: Any = None

    def __repr__(self) -> str:
        state = "done" if hot.ended(self._op) else "goes on"
        return f"<{type(self).__module__}.{type(self).__name__} {self._what} " \
            f"{state}>"

    def _outcome(self, kind: Any) -> Any:
        """The reply, one for all who wait; or raises."""
        if self._message is None:
            self._message = self._take(self._op, kind, self._posted)
        return self._message

    def _check(self) -> None:
        """Raises Unsupported in the child of a fork."""
        check_process(self._endpoint._hub.generation)

    def _late(self, timeout: Optional[float]) -> Exception:
        return error_of(Status.TIMED_OUT,
                        f"{self._what} has not ended in {timeout} s, and goes "
                        "on")
