"""Prometheus metrics under vLLM's names, buckets and meanings, so that its dashboards work unchanged.

The engine thread only adds to plain numbers; families are made when somebody scrapes. Every family is there from the start.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate, count
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from edgewise.core.requests import EngineStats

if TYPE_CHECKING:
    from edgewise.engine.records import RequestRecord, StepRecord

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

# fmt: off
FIRST_TOKEN_S = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0,
    640.0, 2560.0,
)
INTER_TOKEN_S = (
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
)
REQUEST_S = (
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0, 1920.0,
    7680.0,
)
ITERATION_TOKENS = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
NUM_CHOICES = (1, 2, 5, 10, 20)
# fmt: on

_FINISHED_REASONS = {"stop": "stop", "length": "length", "cancelled": "abort", "error": "error"}
_WAITING_REASONS = ("capacity", "deferred")
_LABELS = ("model_name", "engine")


def token_buckets(max_tokens: int) -> tuple[int, ...]:
    """1, 2, 5, 10, 20, 50, ... up to `max_tokens`."""
    buckets: list[int] = []
    for exponent in count():
        for mantissa in (1, 2, 5):
            if (bound := mantissa * 10**exponent) > max_tokens:
                return tuple(buckets) or (1,)
            buckets.append(bound)
    raise AssertionError("count() is endless")


class Histogram:
    """Counts by bucket and their sum. Callers hold the lock of `EngineMetrics`."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    def buckets(self) -> list[tuple[str, float]]:
        """(upper bound, how many at or below it), as Prometheus writes them."""
        names = [*(str(float(bound)) for bound in self.bounds), "+Inf"]
        return [(name, float(total)) for name, total in zip(names, accumulate(self.counts), strict=True)]


class EngineMetrics:
    """An EngineListener that sums up steps and requests. Written by the engine thread, read by the scraper, under a lock."""

    def __init__(self, max_model_len: int) -> None:
        tokens = token_buckets(max_model_len)
        self.lock = threading.Lock()
        self.prompt_tokens = 0
        self.prompt_tokens_cached = 0
        self.generation_tokens = 0
        self.finished: Counter[str] = Counter()
        self.histograms = {
            "vllm:time_to_first_token_seconds": Histogram(FIRST_TOKEN_S),
            "vllm:inter_token_latency_seconds": Histogram(INTER_TOKEN_S),
            "vllm:request_time_per_output_token_seconds": Histogram(INTER_TOKEN_S),
            "vllm:e2e_request_latency_seconds": Histogram(REQUEST_S),
            "vllm:request_queue_time_seconds": Histogram(REQUEST_S),
            "vllm:request_inference_time_seconds": Histogram(REQUEST_S),
            "vllm:request_prefill_time_seconds": Histogram(REQUEST_S),
            "vllm:request_decode_time_seconds": Histogram(REQUEST_S),
            "vllm:request_prompt_tokens": Histogram(tokens),
            "vllm:request_generation_tokens": Histogram(tokens),
            "vllm:request_max_num_generation_tokens": Histogram(tokens),
            "vllm:request_params_max_tokens": Histogram(tokens),
            "vllm:request_params_n": Histogram(NUM_CHOICES),
            "vllm:iteration_tokens_total": Histogram(ITERATION_TOKENS),
        }

    def on_step(self, record: StepRecord) -> None:
        observe = self._observe
        with self.lock:
            self.generation_tokens += record.num_generated_tokens
            observe("iteration_tokens_total", record.num_prefill_rows + record.num_generated_tokens)
            for seconds in record.first_token_s:
                observe("time_to_first_token_seconds", seconds)
            for seconds in record.inter_token_s:
                observe("inter_token_latency_seconds", seconds)

    def on_finish(self, record: RequestRecord) -> None:
        with self.lock:
            self.prompt_tokens += record.num_prompt_tokens
            self.prompt_tokens_cached += record.num_cached_tokens
            self.finished[_FINISHED_REASONS.get(record.finish_reason, "error")] += 1
            self._observe_sizes(record)
            self._observe_times(record)

    def _observe(self, name: str, value: float) -> None:
        self.histograms[f"vllm:{name}"].observe(value)

    def _observe_sizes(self, record: RequestRecord) -> None:
        self._observe("request_prompt_tokens", record.num_prompt_tokens)
        self._observe("request_generation_tokens", record.num_generated_tokens)
        self._observe("request_max_num_generation_tokens", max(record.choice_tokens))
        self._observe("request_params_n", record.num_choices)
        if record.max_tokens is not None:
            self._observe("request_params_max_tokens", record.max_tokens)

    def _observe_times(self, record: RequestRecord) -> None:
        self._observe("e2e_request_latency_seconds", record.total_s)
        self._observe("request_queue_time_seconds", record.queue_s)
        if not record.timings.scheduled_s:
            return
        self._observe("request_inference_time_seconds", record.prefill_s + record.decode_s)
        self._observe("request_prefill_time_seconds", record.prefill_s)
        self._observe("request_decode_time_seconds", record.decode_s)
        later_tokens = (
            max(record.choice_tokens) - 1
        )  # the choices run side by side, so the longest one took the time
        if later_tokens > 0:
            self._observe("request_time_per_output_token_seconds", record.decode_s / later_tokens)


_HELP = {
    "vllm:time_to_first_token_seconds": "Time from arrival to the first token",
    "vllm:inter_token_latency_seconds": "Time between two tokens of a sequence",
    "vllm:request_time_per_output_token_seconds": "Decode time of a request by its tokens after the first",
    "vllm:e2e_request_latency_seconds": "Time from arrival to the end of a request",
    "vllm:request_queue_time_seconds": "Time a request waited before its first step",
    "vllm:request_inference_time_seconds": "Time from the first step to the end of a request",
    "vllm:request_prefill_time_seconds": "Time from the first step to the first token",
    "vllm:request_decode_time_seconds": "Time from the first token to the end of a request",
    "vllm:request_prompt_tokens": "Prompt tokens of a request",
    "vllm:request_generation_tokens": "Generated tokens of a request",
    "vllm:request_max_num_generation_tokens": "Generated tokens of a request's longest choice",
    "vllm:request_params_max_tokens": "max_tokens of a request, after clamping",
    "vllm:request_params_n": "n of a request",
    "vllm:iteration_tokens_total": "Tokens of an engine step, read and generated",
}


class MetricsCollector(Collector):
    """All families of one server. `stats`, `num_refused`, `num_bare_calls` and `ignored` are read at each scrape."""

    def __init__(
        self,
        metrics: EngineMetrics,
        model_name: str,
        *,
        stats: Callable[[], EngineStats],
        num_refused: Callable[[], int],
        num_bare_calls: Callable[[], int],
        ignored: Callable[[], dict[str, int]],
        max_model_len: int,
        block_size: int,
    ) -> None:
        self._metrics = metrics
        self._labels = (model_name, "0")
        self._stats = stats
        self._num_refused = num_refused
        self._num_bare_calls = num_bare_calls
        self._ignored = ignored
        self._max_model_len = max_model_len
        self._block_size = block_size

    def describe(self) -> Iterable[Metric]:
        return ()  # registering must not scrape

    def collect(self) -> Iterator[Metric]:
        stats = self._stats()
        with self._metrics.lock:
            yield from list(self._request_families())
        yield from self._engine_families(stats)
        yield from self._server_families()

    def _counter(self, name: str, text: str, value: float) -> Metric:
        family = CounterMetricFamily(name, text, labels=_LABELS)
        family.add_metric(self._labels, value)
        return family

    def _gauge(self, name: str, text: str, value: float) -> Metric:
        family = GaugeMetricFamily(name, text, labels=_LABELS)
        family.add_metric(self._labels, value)
        return family

    def _request_families(self) -> Iterator[Metric]:
        metrics = self._metrics
        yield self._counter("vllm:prompt_tokens", "Prompt tokens of finished requests", metrics.prompt_tokens)
        yield self._counter(
            "vllm:prompt_tokens_cached", "Prompt tokens found in the cache", metrics.prompt_tokens_cached
        )
        yield self._counter("vllm:generation_tokens", "Generated tokens", metrics.generation_tokens)
        success = CounterMetricFamily(
            "vllm:request_success", "Finished requests", labels=(*_LABELS, "finished_reason")
        )
        for reason in _FINISHED_REASONS.values():
            success.add_metric((*self._labels, reason), metrics.finished[reason])
        yield success
        for name, histogram in metrics.histograms.items():
            family = HistogramMetricFamily(name, _HELP[name], labels=_LABELS)
            family.add_metric(self._labels, histogram.buckets(), histogram.sum)
            yield family

    def _engine_families(self, stats: EngineStats) -> Iterator[Metric]:
        yield self._gauge("vllm:num_requests_running", "Requests being run", stats.num_running)
        yield self._gauge("vllm:num_requests_waiting", "Requests waiting to run", stats.num_waiting)
        by_reason = GaugeMetricFamily(
            "vllm:num_requests_waiting_by_reason", "Requests waiting to run", labels=(*_LABELS, "reason")
        )
        for reason in _WAITING_REASONS:
            by_reason.add_metric((*self._labels, reason), stats.num_waiting if reason == "capacity" else 0)
        yield by_reason
        yield self._gauge("vllm:kv_cache_usage_perc", "Share of KV blocks in use, 0 to 1", stats.kv_usage)
        yield self._counter(
            "vllm:prefix_cache_queries",
            "Prompt tokens looked up in the prefix cache",
            stats.prefix_queries_tokens,
        )
        yield self._counter(
            "vllm:prefix_cache_hits", "Prompt tokens found in the prefix cache", stats.prefix_hits_tokens
        )
        yield self._counter("vllm:num_preemptions", "Sequences preempted", stats.num_preemptions)
        yield self._cache_config(stats)

    def _cache_config(self, stats: EngineStats) -> Metric:
        size_tokens = stats.num_blocks * self._block_size
        facts = {
            "block_size": str(self._block_size),
            "num_gpu_blocks": str(stats.num_blocks),
            "kv_cache_size_tokens": str(size_tokens),
            "kv_cache_max_concurrency": f"{size_tokens / self._max_model_len:.2f}",
        }
        family = GaugeMetricFamily("vllm:cache_config_info", "The KV cache", labels=(*_LABELS, *facts))
        family.add_metric((*self._labels, *facts.values()), 1)
        return family

    def _server_families(self) -> Iterator[Metric]:
        yield self._counter(
            "edgewise:requests_refused", "Requests refused because the server was full", self._num_refused()
        )
        yield self._counter(
            "edgewise:bare_calls", "Tool calls that the model wrote as plain JSON", self._num_bare_calls()
        )
        ignored = CounterMetricFamily(
            "edgewise:ignored_fields", "Request fields without effect", labels=(*_LABELS, "field")
        )
        for name, times in sorted(self._ignored().items()):
            ignored.add_metric((*self._labels, name), times)
        yield ignored


def render(collector: MetricsCollector) -> bytes:
    """The text exposition format, version 0.0.4."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(collector)
    return generate_latest(registry)
