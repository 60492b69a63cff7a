# SPDX-License-Identifier: BSD-3-Clause
"""What bells of both kinds have in common: maps that a GPU sends."""

from __future__ import annotations

import sys
from typing import Any, Dict, Optional

import numpy as np

from ._hub import Hub
from ._lib import hot
from ._stays import Stays
from ._time import milliseconds
from .context import check_process
from .errors import Error, Status, error_of

_LEGACY = 1  # CUDA's default stream, whose own handle is 0


def _current() -> Any:
    """torch's current stream, or cupy's."""
    torch, cupy = sys.modules.get("torch"), sys.modules.get("cupy")
    if torch is not None:
        return torch.cuda.current_stream()
    if cupy is not None:
        return cupy.cuda.get_current_stream()
    raise TypeError("give the stream: ring(stream). Neither torch nor cupy, whose "
                    "current stream would be taken, is loaded")


def stream_handle(stream: Any) -> int:
    """Of a stream of torch's, cupy's or of one with __cuda_stream__, or CUDA's
    number of it."""
    if stream is None:
        stream = _current()
    for name in "cuda_stream", "ptr":
        if hasattr(stream, name):
            return int(getattr(stream, name)) or _LEGACY
    if hasattr(stream, "__cuda_stream__"):
        return int(stream.__cuda_stream__()[1]) or _LEGACY
    if not isinstance(stream, int) or isinstance(stream, bool) or stream < 1:
        raise TypeError(f"stream={stream!r} is neither a stream of CUDA's nor "
                        "its number, which is 1 or more")
    return stream


def _check_buffers(buffers: Any) -> None:
    for name, value in buffers.items():
        if isinstance(value, np.ndarray) and not value.flags.writeable:
            raise ValueError(f"buffer {name!r} cannot be written to")


class BaseBell(Stays):
    """Arrays that a GPU has sent, or received into, made by Endpoint.bell() and
    Endpoint.bell_into(). Keep it: when nothing refers to it any more, the bell
    ends, and what is rung later is not sent."""

    _instead = "make one in each process"

    def __init__(self, hub: Hub, endpoint: int, data: Any,
                 meta: Optional[Dict[str, Any]], flags: int,
                 timeout: Optional[float], receives: bool) -> None:
        if receives:
            _check_buffers(data)
        self._hub = hub
        self._bell = hub.bell(endpoint, data, meta, flags,
                              milliseconds(timeout), receives)

    def ring(self, stream: Any = None) -> None:
        """Has a stream ring the bell when it comes to this: torch's current one,
        or `stream`. Returns at once. While a graph is captured this becomes part
        of it. Of bell_into() it says that the message was read, and the next one
        may come. Raises why the bell has failed."""
        self._give(stream, False)

    def wait(self, stream: Any = None) -> None:
        """Has a stream wait: until the arrays of the last ring may be changed; of
        bell_into(), until the next message is there. Returns at once."""
        self._give(stream, True)

    @property
    def line(self) -> int:
        """The address that a kernel is given, a tmsg_bell_line_t *
        (tensormsg/device/bell.h). No stream rings the bell then."""
        check_process(self._hub.generation)
        return hot.bell_line(self._bell)

    @property
    def failed(self) -> Optional[Error]:
        """Why nothing is sent any more, or None. Look at it now and then: the GPU
        is held up by no bell that has failed."""
        check_process(self._hub.generation)
        status, words = hot.bell_state(self._bell)
        return error_of(status, words) if status else None

    def close(self) -> None:
        """Ends the bell. Graphs that ring it may go on, and send nothing."""
        check_process(self._hub.generation)
        hot.bell_end(self._bell)

    def _give(self, stream: Any, awaits: bool) -> None:
        check_process(self._hub.generation)
        hot.bell_ring(self._bell, stream_handle(stream), awaits)

    def _warm(self, timeout_ms: int) -> bool:
        check_process(self._hub.generation)
        return hot.bell_warm(self._hub.number, self._bell, timeout_ms)

    def _late(self, timeout: Optional[float]) -> Exception:
        return error_of(Status.TIMED_OUT,
                        f"the bell is not warm after {timeout} s")
