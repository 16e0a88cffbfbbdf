"""GET /metrics: every vLLM family from the start, and sums that agree with what a client counted."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from edgewise.core.requests import RequestTimings
from edgewise.engine.records import RequestRecord
from edgewise.pipeline import Pipeline
from edgewise.server.metrics import EngineMetrics, Histogram, token_buckets
from tests.server.conftest import MakeClient

FAMILIES = [
    "num_requests_running",
    "num_requests_waiting",
    "num_requests_waiting_by_reason",
    "kv_cache_usage_perc",
    "prefix_cache_queries",
    "prefix_cache_hits",
    "num_preemptions",
    "prompt_tokens",
    "prompt_tokens_cached",
    "generation_tokens",
    "request_success",
    "request_prompt_tokens",
    "request_generation_tokens",
    "iteration_tokens_total",
    "request_max_num_generation_tokens",
    "request_params_n",
    "request_params_max_tokens",
    "time_to_first_token_seconds",
    "inter_token_latency_seconds",
    "request_time_per_output_token_seconds",
    "e2e_request_latency_seconds",
    "request_queue_time_seconds",
    "request_inference_time_seconds",
    "request_prefill_time_seconds",
    "request_decode_time_seconds",
    "cache_config_info",
]


async def scrape(client: httpx.AsyncClient) -> dict[str, float]:
    """Every sample by name and labels, those of bucket, model and engine left out."""
    response = await client.get("/metrics")
    assert response.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    samples: dict[str, float] = {}
    for family in text_string_to_metric_families(response.text):
        for sample in family.samples:
            labels = {k: v for k, v in sample.labels.items() if k not in ("model_name", "engine")}
            samples[sample.name + (json.dumps(labels, sort_keys=True) if labels else "")] = sample.value
    return samples


async def test_every_family_is_there_at_zero(client: httpx.AsyncClient):
    text = (await client.get("/metrics")).text
    found = {family.name for family in text_string_to_metric_families(text)}
    assert {f"vllm:{name}" for name in FAMILIES} <= found
    assert "_created" not in text
    for name, value in (await scrape(client)).items():
        if not name.startswith("vllm:cache_config_info"):
            assert value == 0, name


async def test_buckets_are_vllm_s(client: httpx.AsyncClient):
    samples = await scrape(client)

    def bounds(name: str) -> list[str]:
        prefix = f"vllm:{name}_bucket"
        return [json.loads(key.removeprefix(prefix))["le"] for key in samples if key.startswith(prefix + "{")]

    assert len(bounds("time_to_first_token_seconds")) == 22 + 1
    assert (bounds("time_to_first_token_seconds")[0], bounds("time_to_first_token_seconds")[-2]) == (
        "0.001",
        "2560.0",
    )
    assert len(bounds("inter_token_latency_seconds")) == 19 + 1
    assert len(bounds("e2e_request_latency_seconds")) == 21 + 1
    assert bounds("request_prompt_tokens") == [
        "1.0",
        "2.0",
        "5.0",
        "10.0",
        "20.0",
        "50.0",
        "100.0",
        "200.0",
        "500.0",
        "+Inf",
    ]
    assert bounds("iteration_tokens_total")[-2] == "16384.0"
    assert bounds("request_params_n") == ["1.0", "2.0", "5.0", "10.0", "20.0", "+Inf"]


def test_choices_of_unequal_length_are_measured_by_the_longest():
    metrics = EngineMetrics(1000)
    timings = RequestTimings(arrival_s=1.0, scheduled_s=1.5, first_token_s=2.0, finished_s=6.0)
    metrics.on_finish(
        RequestRecord(
            request_id="r",
            finish_reason="length",
            finish_reasons=("stop", "length"),
            num_prompt_tokens=5,
            num_cached_tokens=0,
            choice_tokens=(3, 41),
            num_preemptions=0,
            max_tokens=41,
            timings=timings,
        )
    )
    sums = {name.removeprefix("vllm:"): histogram.sum for name, histogram in metrics.histograms.items()}
    assert sums["request_generation_tokens"] == 44
    assert sums["request_max_num_generation_tokens"] == 41
    assert sums["request_time_per_output_token_seconds"] == pytest.approx(4.0 / 40)
    assert sums["request_params_n"] == 2


def test_a_value_on_a_bound_counts_below_it():
    histogram = Histogram((1, 2))
    for value in (1, 1.5, 2, 3):
        histogram.observe(value)
    assert histogram.buckets() == [("1.0", 1.0), ("2.0", 3.0), ("+Inf", 4.0)]


@pytest.mark.parametrize(("limit", "last"), [(1, 1), (4, 2), (512, 500), (100_000, 100_000)])
def test_token_buckets_end_at_the_window(limit: int, last: int):
    assert token_buckets(limit)[-1] == last


@pytest.mark.slow
async def test_a_scripted_run_agrees_with_the_client(make: Callable[..., Pipeline], client_of: MakeClient):
    client = client_of(make(model={"step_delay_s": 0.1}))
    record: dict[str, float] = dict.fromkeys(
        ("prompt", "generated", "cached", "ttft", "itl", "e2e", "gaps"), 0.0
    )

    async def one(i: int) -> None:
        body: dict[str, Any] = {"prompt": f"{i} prompt " * (i + 1), "max_tokens": 5 + i, "temperature": 0}
        began = time.monotonic()
        usage = (await client.post("/v1/completions", json=body)).json()["usage"]
        record["e2e"] += time.monotonic() - began
        record["prompt"] += usage["prompt_tokens"]
        record["generated"] += usage["completion_tokens"]
        record["cached"] += usage["prompt_tokens_details"]["cached_tokens"]

    began = time.monotonic()
    await asyncio.gather(*(one(i) for i in range(6)))
    await one(3)
    assert time.monotonic() - began > 0.1
    samples = await scrape(client)

    def close(name: str, value: float) -> None:
        assert samples[f"vllm:{name}"] == pytest.approx(value, rel=0.05), name

    close("prompt_tokens_total", record["prompt"])
    close("generation_tokens_total", record["generated"])
    close("prompt_tokens_cached_total", record["cached"])
    close("prefix_cache_hits_total", record["cached"])
    close("prefix_cache_queries_total", record["prompt"])
    close("request_prompt_tokens_sum", record["prompt"])
    close("request_generation_tokens_sum", record["generated"])
    close("request_max_num_generation_tokens_sum", record["generated"])
    close("iteration_tokens_total_sum", record["prompt"] - record["cached"] + record["generated"])
    close("request_params_max_tokens_sum", sum(5 + i for i in (0, 1, 2, 3, 4, 5, 3)))
    close("request_params_n_sum", 7)
    close('request_success_total{"finished_reason": "length"}', 7)
    close("time_to_first_token_seconds_count", 7)
    close("inter_token_latency_seconds_count", record["generated"] - 7)
    close("e2e_request_latency_seconds_count", 7)
    close("e2e_request_latency_seconds_sum", record["e2e"])
    parts = ("queue", "prefill", "decode")
    total = sum(samples[f"vllm:request_{part}_time_seconds_sum"] for part in parts)
    close("e2e_request_latency_seconds_sum", total)
    first_tokens = total - samples["vllm:request_decode_time_seconds_sum"]
    close("time_to_first_token_seconds_sum", first_tokens)
    close("inter_token_latency_seconds_sum", samples["vllm:request_decode_time_seconds_sum"])
    assert samples["vllm:num_requests_running"] == 0


async def test_stopped_requests_are_counted_by_reason(client: httpx.AsyncClient):
    await client.post("/v1/completions", json={"prompt": "Once upon", "temperature": 0})
    assert (await scrape(client))['vllm:request_success_total{"finished_reason": "stop"}'] == 1


async def test_metrics_can_be_turned_off(pipeline: Pipeline, client_of: MakeClient):
    assert (await client_of(pipeline, enable_metrics=False).get("/metrics")).status_code == 404
