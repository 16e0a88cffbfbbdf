"""What the gateway counts, as Prometheus reads it. Keys appear by their id, never by value; what clients can name freely is bounded."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

_SECONDS = (
    0.001,
    0.002,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
    30.0,
    60.0,
    120.0,
    600.0,
)
_MAX_FIELDS = 256
_MAX_FIELD_CHARS = 64
NONE: Final = "none"
"""The upstream of a request that reached none."""


class GatewayMetrics:
    """Event loop only, but for `render`."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._fields: set[str] = set()
        self.requests = self._counter(
            "requests", "Requests answered, by status", "api", "upstream", "key", "status"
        )
        self.upstream_errors = self._counter(
            "upstream_errors",
            "What upstreams failed with: refused, broken, an HTTP status",
            "upstream",
            "kind",
        )
        self.retries = self._counter("retries", "Requests tried elsewhere or again", "upstream", "reason")
        self.rules = self._counter(
            "rules_applied", "Shaping rules that changed something", "upstream", "rule"
        )
        self.dropped = self._counter("dropped_fields", "Request fields left out", "upstream", "field")
        self.keepalives = self._counter("keepalives", "Signs of life sent for a silent upstream", "api")
        self.clients_gone = self._counter("clients_gone", "Clients that left before the end", "api")
        self.first_byte_s = self._histogram("first_byte_seconds", "Until the first byte of an answer")
        self.request_s = self._histogram("request_seconds", "Until the last byte of an answer")

    def _counter(self, name: str, help_text: str, *labels: str) -> Counter:
        return Counter(f"edgewise_gateway_{name}", help_text, labels, registry=self.registry)

    def _histogram(self, name: str, help_text: str) -> Histogram:
        return Histogram(
            f"edgewise_gateway_{name}",
            help_text,
            ("api", "upstream"),
            buckets=_SECONDS,
            registry=self.registry,
        )

    def note_plan(self, upstream: str, applied: Iterable[str], dropped: Iterable[str]) -> None:
        """What shaping did to a request."""
        for rule in applied:
            self.rules.labels(upstream, rule).inc()
        self.note_dropped(upstream, dropped)

    def note_repairs(self, upstream: str, counts: Mapping[str, int]) -> None:
        """What was put right in a reply."""
        for rule, number in counts.items():
            self.rules.labels(upstream, rule).inc(number)

    def note_dropped(self, upstream: str, names: Iterable[str]) -> None:
        for name in names:
            short = name[:_MAX_FIELD_CHARS]
            if short not in self._fields:
                if len(self._fields) >= _MAX_FIELDS:
                    short = "other"
                self._fields.add(short)
            self.dropped.labels(upstream, short).inc()

    def watch(self, name: str, help_text: str, values: Callable[[], dict[str, float]]) -> None:
        """A gauge per upstream that is read when somebody scrapes."""
        self.registry.register(_Gauges(f"edgewise_gateway_{name}", help_text, values))

    def render(self) -> bytes:
        return generate_latest(self.registry)


class _Gauges(Collector):
    def __init__(self, name: str, help_text: str, values: Callable[[], dict[str, float]]) -> None:
        self._name = name
        self._help = help_text
        self._values = values

    def collect(self) -> Iterable[Metric]:
        family = GaugeMetricFamily(self._name, self._help, labels=["upstream"])
        for upstream, value in self._values().items():
            family.add_metric([upstream], value)
        yield family
