"""The measurements of `edgewise bench`: ours and the peer's runs interleaved A B A B, medians, shares of the machine's limits.

Limits are measured in the same run: read bandwidth (all threads reading a large buffer) and the peak of the 8-bit multiply-add loop. A
decode step must read the whole weight file once, whatever it is packed into here, so its share counts the bytes of the *file*.
"""

from __future__ import annotations

import contextlib
import statistics
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgewise import _native
from edgewise.bench.engine_under_test import EngineUnderTest
from edgewise.bench.figure import Figure, rate_figure
from edgewise.bench.peer import PeerError, PeerProcess, find_interpreter
from edgewise.bench.prefix import prefix_hit_seconds
from edgewise.core.errors import ConfigError
from edgewise.core.spec import DecoderSpec

GROUPS = ("decode", "prefill", "long_decode", "prefix_hit")


@dataclass(frozen=True, slots=True)
class BenchOptions:
    """What to measure. `budget_s` bounds one figure: sampling stops after it, but never before one sample of each side."""

    model: str
    source: Path  # the GGUF file, for the peer
    threads: int
    isa: str = "auto"
    peer: str | None = None
    peers_dir: Path | None = None
    samples: int = 5
    budget_s: float = 90.0
    prefills: tuple[int, ...] = (512, 4096)
    batches: tuple[int, ...] = (1, 4, 8, 16)
    long_context: int = 8000
    figures: tuple[str, ...] | None = None  # of GROUPS; None: all


@dataclass(slots=True)
class Machine:
    """What this machine can do, measured in this run."""

    read_bandwidth_gbs: float
    int8_peak_gops: float


def multiply_adds_per_token(spec: DecoderSpec) -> int:
    """Multiply-adds of one token through all layers, without the head."""
    total = 0
    for layer in spec.layers:
        a, m = layer.mixer, layer.mlp
        heads = getattr(a, "num_heads", 0)
        kv_heads = getattr(a, "num_kv_heads", 0)
        total += spec.embed_dim * (heads + kv_heads) * a.head_dim
        total += spec.embed_dim * (kv_heads + heads) * getattr(a, "value_dim", 0)
        total += spec.embed_dim * m.hidden_dim * (3 if m.gated else 2)
    return total


class PeerSide:
    """The peer with its two modes (flash attention on, off); the better counts. A crash costs the mode, not the run."""

    def __init__(self, options: BenchOptions) -> None:
        assert options.peer is not None
        self.name = options.peer
        self._options = options
        self._python = find_interpreter(options.peer, options.peers_dir or Path())
        self.failures: dict[str, str] = {}
        self.process = self._start()

    def _start(self) -> PeerProcess:
        process = PeerProcess(self.name, self._python)
        self.load_s = float(
            process.call("open", path=str(self._options.source), threads=self._options.threads)["seconds"]
        )
        return process

    def seconds(self, op: str, flash: bool, arguments: dict[str, Any]) -> float | None:
        """Seconds of one run, or None when this mode cannot do it."""
        key = f"{op} flash={flash} {arguments}"
        if key in self.failures:
            return None
        try:
            return float(self.process.call(op, flash=flash, **arguments)["seconds"])
        except PeerError as error:
            self.failures[key] = str(error)
            print(f"{self.name}: {key}: {error}", file=sys.stderr)
            self.process.close()
            self.process = self._start()
            return None

    def best_mode(self, op: str, arguments: dict[str, Any]) -> tuple[bool, list[float]] | None:
        """Runs each mode once (after a warm-up); the faster one with its first sample."""
        found = []
        for flash in (False, True):
            seconds = self.seconds(op, flash, arguments)
            if seconds is not None:
                found.append((seconds, flash))
        return (min(found)[1], [min(found)[0]]) if found else None


class Bench:
    """One run over one model. `figures()` yields each figure as soon as it is measured."""

    def __init__(self, options: BenchOptions) -> None:
        unknown = set(options.figures or ()) - set(GROUPS)
        if unknown:
            raise ConfigError(
                f"unknown figures: {', '.join(sorted(unknown))}", hint=f"of: {', '.join(GROUPS)}"
            )
        self.options = options
        most = max([*options.prefills, options.long_context + 128, *(b * 256 for b in options.batches)])
        self.ours = EngineUnderTest(options.model, options.threads, isa=options.isa, max_tokens=most + 64)
        self.peer = PeerSide(options) if options.peer else None
        self.machine = Machine(0.0, 0.0)

    def close(self) -> None:
        self.ours.decoder.close()
        if self.peer:
            self.peer.process.close()

    def figures(self) -> Iterator[Figure]:
        options = self.options
        wanted = options.figures or GROUPS
        yield from self._machine()
        for batch in options.batches if "decode" in wanted else ():
            yield self._decode(batch, context=64)
        for tokens in options.prefills if "prefill" in wanted else ():
            yield self._prefill(tokens)
        if "long_decode" in wanted:
            yield self._decode(1, context=options.long_context)
        yield self._load()
        yield self._peak_memory()
        if "prefix_hit" in wanted:  # last: it loads the model a second time
            yield prefix_hit(options)

    def _machine(self) -> Iterator[Figure]:
        pool = self.ours.decoder.pool
        reads = tuple(_native.read_bandwidth(pool, 512 << 20, 0.5) for _ in range(self.options.samples))
        peaks = tuple(_native.int8_peak(pool, 0.3) for _ in range(self.options.samples))
        self.machine = Machine(statistics.median(reads), statistics.median(peaks))
        reset_peak_rss()  # the probes' buffer is none of the engine's memory
        yield Figure("read_bandwidth", self.machine.read_bandwidth_gbs, "GB/s", reads)
        yield Figure("int8_peak", self.machine.int8_peak_gops, "GOP/s", peaks)

    def _interleave(
        self, ours: Callable[[], float], op: str, arguments: dict[str, Any]
    ) -> tuple[list[float], list[float]]:
        """Seconds of our runs and of the peer's, taken in turn after a warm-up of each."""
        ours()
        ours_s, peer_s = [ours()], []
        mode = self.peer.best_mode(op, arguments) if self.peer else None
        if mode is not None:
            peer_s += mode[1]
        while len(ours_s) < self.options.samples and sum(ours_s) + sum(peer_s) < self.options.budget_s:
            ours_s.append(ours())
            if mode is not None and self.peer is not None:
                seconds = self.peer.seconds(op, mode[0], arguments)
                if seconds is not None:
                    peer_s.append(seconds)
        return ours_s, peer_s

    def _decode(self, batch: int, context: int) -> Figure:
        steps = 64 if batch == 1 else 32
        ours_s, peer_s = self._interleave(
            lambda: self.ours.decode(batch, steps, context),
            "decode",
            {"batch": batch, "steps": steps, "context": context},
        )
        spec = self.ours.decoder.spec
        head = spec.vocab_size * spec.embed_dim
        by_bytes = self.ours.engine_dir.file_bytes / batch / (self.machine.read_bandwidth_gbs * 1e9)
        by_compute = 2 * (multiply_adds_per_token(spec) + head) / (self.machine.int8_peak_gops * 1e9)
        return rate_figure(
            "decode", batch * steps, ours_s, peer_s,
            share_per_rate=max(by_bytes, by_compute), peer_name=self.options.peer,
            details={"batch": batch, "context": context},
        )  # fmt: skip

    def _prefill(self, tokens: int) -> Figure:
        ours_s, peer_s = self._interleave(lambda: self.ours.prefill(tokens), "prefill", {"tokens": tokens})
        operations = 2 * multiply_adds_per_token(self.ours.decoder.spec)
        return rate_figure(
            "prefill", tokens, ours_s, peer_s,
            share_per_rate=operations / (self.machine.int8_peak_gops * 1e9), peer_name=self.options.peer,
            details={"tokens": tokens},
        )  # fmt: skip

    def _load(self) -> Figure:
        peer = self.peer.load_s if self.peer else None
        return Figure(
            "load", self.ours.load_s, "s",
            peer_name=self.options.peer, peer=peer, ratio=peer / self.ours.load_s if peer else None,
        )  # fmt: skip

    def _peak_memory(self) -> Figure:
        ours = float(peak_rss_bytes())
        peer = float(self.peer.process.call("rss")["bytes"]) if self.peer else None
        return Figure(
            "peak_memory", ours, "bytes",
            peer_name=self.options.peer, peer=peer, ratio=peer / ours if peer else None,
        )  # fmt: skip


def prefix_hit(options: BenchOptions) -> Figure:
    """Time to the first token of 4,096 cached and 16 new tokens, beside the time of reading them all."""
    hot, cold = prefix_hit_seconds(
        options.model, threads=options.threads, isa=options.isa, cached=4096, new=16, samples=options.samples
    )
    value = statistics.median(hot)
    return Figure(
        "prefix_hit", value, "s", tuple(hot),
        details={"tokens": 4112, "cold_s": statistics.median(cold), "share_of_cold": value / statistics.median(cold)},
    )  # fmt: skip


def reset_peak_rss() -> None:
    """Let VmHWM start again from what is resident now (clear_refs of proc(5)); where that is not allowed it stays."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def peak_rss_bytes() -> int:
    """The most memory this process has had resident (VmHWM of /proc)."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0
