# SPDX-License-Identifier: BSD-3-Clause
"""What endpoints and listeners of both kinds have in common."""

from __future__ import annotations

from typing import Any, Dict, Generic, TypeVar

from ._hub import Hub
from ._lib import lib
from ._message import Like, _converter
from .errors import Error, Status, error_of

H = TypeVar("H", bound=Hub)

ACKED = 1 << 0
VERIFY = 1 << 1


def flags_of(acked: bool, verify: bool) -> int:
    return (ACKED if acked else 0) | (VERIFY if verify else 0)


class BaseEndpoint(Generic[H]):
    """A connection to one peer."""

    def __init__(self, hub: H, number: int, like: Like, dialled: bool) -> None:
        self._hub = hub
        self._number = number
        self._convert = _converter(like)
        self._dialled = dialled  # and so alone on its hub
        self._gone = False
        self._closing = False

    def __repr__(self) -> str:
        return f"<{type(self).__module__}.{type(self).__name__} {self.peer}>"

    @property
    def peer(self) -> str:
        """The peer in words: "tcp://10.0.0.7:4000 (pid 4711 on node7)"."""
        return "a closed endpoint" if self._gone else \
            self._hub.peer(self._number)

    @property
    def closed(self) -> bool:
        """Whether it has ended: closed on either side, or failed."""
        if self._gone:
            return True
        try:
            return self._hub.status(self._number) < 0
        except Error:
            return True

    def describe(self) -> Dict[str, Any]:
        """Peer, versions, which transports carry it and why, counters."""
        self._check()
        return self._hub.describe(self._number)

    def abort(self) -> None:
        """Ends it at once: what was under way is given up, and the peer sees
        PeerLost."""
        if self._gone:
            return
        self._gone = True
        if self._dialled:
            self._hub.destroy()
        else:
            self._hub.endpoints.pop(self._number, None)
            self._hub.destroy_endpoint(self._number)

    def bury(self) -> None:
        """It has ended and all was pulled."""
        if not self._gone:
            self._gone = True
            self._hub.destroy_endpoint(self._number)

    def _check(self) -> None:
        if self._gone:
            raise error_of(Status.CLOSED, "the endpoint is closed")

    def _begin_close(self) -> Any:
        return self._hub.operation(lib.tmsg_endpoint_close, self._number)


class BaseListener(Generic[H]):
    """A door that peers come in by."""

    def __init__(self, hub: H, url: str, like: Like,
                 allow_unauthenticated: bool) -> None:
        self._hub = hub
        self._like = like
        self._convert = _converter(like)
        self._listener, self._url = hub.listen(url, allow_unauthenticated)

    def __repr__(self) -> str:
        return f"<{type(self).__module__}.{type(self).__name__} {self._url}>"

    @property
    def url(self) -> str:
        """Where it listens, with the port that was picked."""
        return self._url

    def _make(self, number: int) -> Any:
        raise NotImplementedError

    def _sender(self, number: int) -> Any:
        endpoint = self._hub.endpoints.get(number)
        if endpoint is None:
            self._hub.news(self._make)
            endpoint = self._hub.endpoints.get(number)
        return endpoint
