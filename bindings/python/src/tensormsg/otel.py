# SPDX-License-Identifier: BSD-3-Clause
"""Spans for OpenTelemetry, linked by the W3C's trace context::

    import tensormsg.otel

    tensormsg.otel.instrument()

It needs the extra `tensormsg[otel]`, which is OpenTelemetry's API; an SDK, which
the application chooses, says where spans go.
"""

from __future__ import annotations

from typing import Any, ContextManager, Dict, List, Optional

try:
    from opentelemetry import trace
    from opentelemetry.context import Context
    from opentelemetry.trace.propagation.tracecontext import \
        TraceContextTextMapPropagator
except ImportError as missing:
    raise ImportError(
        "tensormsg.otel needs the package opentelemetry-api: pip install "
        "'tensormsg[otel]'") from missing

from ._intercept import InterceptedCall, Interceptor, everywhere
from ._lib import lib, text
from .errors import Error, Status

__all__ = ["Tracing", "instrument", "uninstrument"]

# W3C's names of the header fields, and this package's of the metadata.
_FIELDS = {"traceparent": "trace_parent", "tracestate": "trace_state"}
_OWN = "tensormsg."  # methods of the library
_W3C = TraceContextTextMapPropagator()


def __dir__() -> List[str]:
    return sorted(__all__)


def _context_of(meta: Dict[str, Any]) -> Optional[Context]:
    """What the metadata says of the parent."""
    carrier = {field: meta[name] for field, name in _FIELDS.items()
               if isinstance(meta.get(name), str)}
    return _W3C.extract(carrier, Context()) if carrier else None


class Tracing(Interceptor):
    """Makes a span of each call and each stream that it sees, but for the
    library's own methods. That of a caller is a child of the current span, or
    of what the metadata `trace_parent` says; that of a server is a child of its
    caller's, and is the current span while the handler runs."""

    def __init__(self, tracer_provider: Optional[trace.TracerProvider] = None
                 ) -> None:
        self._tracer = trace.get_tracer("tensormsg", text(lib.tmsg_version()),
                                        tracer_provider)

    def begin(self, call: InterceptedCall) -> None:
        """Starts its span."""
        if call.method.startswith(_OWN):
            return
        calls = call.side == "caller"
        context = _context_of(call.meta)
        if context is None and not calls:
            context = Context()  # none of the thread's that moves messages
        call.state = self._tracer.start_span(
            call.method, context,
            trace.SpanKind.CLIENT if calls else trace.SpanKind.SERVER,
            {"rpc.system": "tensormsg", "rpc.method": call.method,
             "tensormsg.peer": call.peer, "tensormsg.stream": call.is_stream})
        if calls:
            self._tell(call)

    def _tell(self, call: InterceptedCall) -> None:
        """The server, of the span of a caller."""
        carrier: Dict[str, str] = {}
        _W3C.inject(carrier, trace.set_span_in_context(call.state, Context()))
        try:
            for field, value in carrier.items():
                call.add_meta(_FIELDS[field], value)
        except Error:  # there is no room for it
            pass

    def around(self, call: InterceptedCall) -> Optional[ContextManager[Any]]:
        """The handler, which the span is the current one of."""
        return None if call.state is None else trace.use_span(
            call.state, record_exception=True, set_status_on_exception=False)

    def end(self, call: InterceptedCall) -> None:
        """Ends its span."""
        span = call.state
        if span is None:
            return
        span.set_attribute("tensormsg.sent_bytes", call.sent_bytes)
        span.set_attribute("tensormsg.received_bytes", call.received_bytes)
        if call.is_stream:
            span.set_attribute("tensormsg.sent", call.sent)
            span.set_attribute("tensormsg.received", call.received)
        if call.attempts > 1:
            span.set_attribute("tensormsg.attempts", call.attempts)
        if call.status:
            span.set_attribute("error.type", call.status.name if isinstance(
                call.status, Status) else str(call.status))
            span.set_status(trace.Status(trace.StatusCode.ERROR, call.error))
        span.end()


_instrumented: List[Tracing] = []


def instrument(tracer_provider: Optional[trace.TracerProvider] = None) -> None:
    """Has all calls and streams traced, of connections and servers that are made
    from now on. `tracer_provider`: default the global one. A second call
    does nothing."""
    if not _instrumented:
        _instrumented.append(Tracing(tracer_provider))
        everywhere.append(_instrumented[0])


def uninstrument() -> None:
    """Those that are made from now on are traced no more."""
    while _instrumented:
        everywhere.remove(_instrumented.pop())
