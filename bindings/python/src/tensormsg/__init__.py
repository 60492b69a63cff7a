# SPDX-License-Identifier: BSD-3-Clause
"""Dicts of arrays from process to process, over UCX::

    async with tensormsg.connect("host:port") as ep:
        await ep.send({"x": x, "y": y}, frame=7)

    async for msg in tensormsg.listen(":13337"):
        print(msg["x"], msg.meta["frame"])

    reply = await ep.call("infer", {"image": image}, timeout=1)

    async with ep.stream("track") as stream:
        await stream.send({"image": image})
        print((await stream.recv())["boxes"])

    async with tensormsg.publish(":13338", keep=1) as camera:
        await camera.send({"image": image}, frame=7)

The same without asyncio: `with` and `for`. And from and to files::

    tensormsg.save("now.safetensors", {"x": x, "step": 7})
    x = tensormsg.load("now.safetensors")["x"]
"""

from __future__ import annotations

from typing import Any, Dict, List, get_type_hints

from . import _ucx, sync
from ._aio import Bell, Call, Endpoint, Listener, Message, Offer, PeerEvent, \
    Publisher, Server, ServerStream, Stream
from ._files import File, load, open, save
from ._intercept import InterceptedCall, Interceptor
from ._lib import lib, text
from ._loan import empty, is_lent
from ._message import DLPack, RawTensor
from ._metrics import CallMetrics, Latency
from ._open import connect, listen, publish
from ._opening import Connecting, Listening, Publishing
from ._serve import Health, Request
from ._session import SessionEvent
from ._told import Reply
from .allocators import set_allocator
from .context import Context, default_context
from .errors import AlreadyExists, ApplicationFailed, Busy, CallError, \
    Canceled, Closed, Corrupt, Dropped, Error, Incompatible, Insecure, \
    Internal, InvalidParam, IOFailed, LimitExceeded, Malformed, NoMemory, \
    NotFound, PeerLost, Refused, ResourceExhausted, Status, TimedOut, \
    Unavailable, Unreachable, Unsupported, WouldBlock
from .keys import Keyring, generate_key, save_key
from .tls import TLS

__all__ = [
    "AlreadyExists", "ApplicationFailed", "Bell", "Busy", "Call", "CallError",
    "CallMetrics", "Canceled", "Closed", "Connecting", "Context", "Corrupt", "DLPack",
    "Dropped", "Endpoint", "Error", "File", "Health", "IOFailed", "Incompatible",
    "Insecure", "InterceptedCall", "Interceptor", "Internal",
    "InvalidParam", "Keyring", "Latency", "LimitExceeded", "Listener", "Listening",
    "Malformed", "Message", "NoMemory", "NotFound", "Offer", "PeerEvent",
    "PeerLost", "Publisher", "Publishing", "RawTensor", "Refused", "Reply", "Request",
    "ResourceExhausted", "Server", "ServerStream", "SessionEvent", "Status", "Stream",
    "TLS", "TimedOut", "Unavailable", "Unreachable", "Unsupported", "WouldBlock",
    "connect", "empty", "generate_key", "info", "is_lent", "listen", "load",
    "open", "publish", "save", "save_key", "set_allocator", "sync",
]

__version__ = text(lib.tmsg_version())


def __dir__() -> List[str]:
    return sorted(__all__)


def info() -> Dict[str, Any]:
    """Versions; which UCX this is, from where and why ("ucx"); and what the
    library finds on the machine ("machine")."""
    return {"version": __version__, "ucx": _ucx.describe(),
            "machine": default_context().describe()}


# As users, tracebacks and pickles name them. Annotations are made of their words
# before, which mean something in the modules where they stand alone.
for _thing in [globals()[_name] for _name in __all__]:
    if isinstance(_thing, type):
        _thing.__annotations__ = get_type_hints(_thing)
for _thing in [globals()[_name] for _name in __all__]:
    if callable(_thing):
        _thing.__module__ = __name__
del _thing
