# SPDX-License-Identifier: BSD-3-Clause
"""Metrics for prometheus_client::

    from prometheus_client import REGISTRY, start_http_server
    from tensormsg.prometheus import Collector

    REGISTRY.register(Collector(server))
    start_http_server(9000)

It needs the extra `tensormsg[prometheus]`.
"""

from __future__ import annotations

import weakref
from typing import Any, Dict, Iterator, List, Tuple

try:
    from prometheus_client.core import Metric
    from prometheus_client.parser import text_string_to_metric_families
    from prometheus_client.registry import Collector as _Collector
except ImportError as missing:
    raise ImportError(
        "tensormsg.prometheus needs the package prometheus_client: pip install "
        "'tensormsg[prometheus]'") from missing

from .errors import Closed, Unsupported

Labels = Tuple[Tuple[str, str], ...]

__all__ = ["Collector"]


def __dir__() -> List[str]:
    return sorted(__all__)


class Collector(_Collector):
    """Collects the metrics of servers and endpoints, of either face. Series of
    the same side, method and status are summed. It keeps none of them alive,
    and leaves out those that were closed, and in the child of a fork those of
    its parent."""

    def __init__(self, *sources: Any) -> None:
        self._sources: "weakref.WeakSet[Any]" = weakref.WeakSet()
        for source in sources:
            self.add(source)

    def add(self, source: Any) -> None:
        """Collects those of a further server or endpoint."""
        if not callable(getattr(source, "metrics_text", None)):
            raise TypeError(f"a server or an endpoint has metrics, not {source!r}")
        self._sources.add(source)

    def describe(self) -> List[Metric]:
        """Nothing: the names of methods are not known yet."""
        return []

    def collect(self) -> Iterator[Metric]:
        """What prometheus_client calls, in its own thread."""
        families: Dict[str, Metric] = {}
        sums: Dict[str, Dict[Tuple[str, Labels], float]] = {}
        # A server, and the endpoints of its listener, tell the same.
        for source in {source._hub.number: source
                       for source in list(self._sources)}.values():
            try:
                text = source.metrics_text()
            except (Closed, Unsupported):  # it is the parent's of a fork
                continue
            for family in text_string_to_metric_families(text):
                families.setdefault(family.name, family)
                values = sums.setdefault(family.name, {})
                for sample in family.samples:
                    series = sample.name, tuple(sample.labels.items())
                    values[series] = values.get(series, 0) + sample.value
        for name, family in families.items():
            metric = Metric(name, family.documentation, family.type)
            for (sample_name, labels), value in sums[name].items():
                metric.add_sample(sample_name, dict(labels), value)
            yield metric
