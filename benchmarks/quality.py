"""Accuracy: mean KL divergence to an fp32 forward of the same dequantised file, ours and llama.cpp's, and their ratio.

The same ids on both sides, f16 KV on both sides, over the texts in benchmarks/texts. The ratio comes with a 95 % bootstrap interval
over tokens (paired). Prints one JSON line a model and writes docs/accuracy.md. Needs `make peers`.

Usage: python benchmarks/quality.py [MODEL ...]
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

import numpy as np
import numpy.typing as npt

from edgewise.architectures import describe
from edgewise.bench.engine_under_test import EngineUnderTest
from edgewise.bench.peer import PeerProcess, find_interpreter
from edgewise.bench.settings import default_peers_dir
from edgewise.checkpoints import open_checkpoint, resolve_source
from edgewise.decoder.reference import ReferenceDecoder

TEXTS = Path(__file__).parent / "texts"
REPORT = Path(__file__).parents[1] / "docs" / "accuracy.md"
MODELS = ("smollm2-135m-instruct", "qwen2.5-coder-0.5b-instruct")
ROWS = 64  # rows whose distributions are compared at once: bounds the memory


def log_softmax(logits: npt.NDArray[np.floating]) -> npt.NDArray[np.float64]:
    x = logits.astype(np.float64)
    x -= x.max(axis=-1, keepdims=True)
    return x - np.log(np.exp(x).sum(axis=-1, keepdims=True))


def divergence(truth: npt.NDArray[np.floating], other: npt.NDArray[np.floating]) -> npt.NDArray[np.float64]:
    """KL(truth || other) of every row, nats."""
    parts = []
    for begin in range(0, len(truth), ROWS):
        p, q = log_softmax(truth[begin : begin + ROWS]), log_softmax(other[begin : begin + ROWS])
        parts.append((np.exp(p) * (p - q)).sum(axis=-1))
    return np.concatenate(parts)


def bootstrap_ratio(
    ours: npt.NDArray[np.float64], peer: npt.NDArray[np.float64], samples: int = 4000
) -> tuple[float, float]:
    """95 % interval of mean(ours) / mean(peer), resampling tokens in pairs."""
    rng = np.random.default_rng(1)
    index = rng.integers(0, len(ours), size=(samples, len(ours)))
    ratios = ours[index].mean(axis=1) / peer[index].mean(axis=1)
    low, high = np.percentile(ratios, [2.5, 97.5])
    return float(low), float(high)


def peer_logits(peer: PeerProcess, ids: list[int], flash: bool) -> npt.NDArray[np.float32]:
    with tempfile.NamedTemporaryFile() as file:
        peer.call("evaluate", tokens=ids, flash=flash, out=file.name)
        return np.fromfile(file.name, np.float32).reshape(len(ids), -1)


def measure(model: str) -> dict[str, object]:
    """Every text through the reference, the engine and the peer."""
    path = resolve_source(model)
    checkpoint = open_checkpoint(path)
    mapping = describe(checkpoint)
    cache: dict[str, npt.NDArray[np.float32]] = {}

    def tensor(name: str) -> npt.NDArray[np.float32]:
        if name not in cache:
            source = mapping.tensors[name]
            values = checkpoint.dequantize(source.name)
            values = values if source.rows is None else values[source.rows]
            cache[name] = values + np.float32(source.add) if source.add else values
        return cache[name]

    reference = ReferenceDecoder(mapping.spec, tensor)
    python = find_interpreter("llama.cpp", default_peers_dir())
    ours_kl, peer_kl = [], {False: [], True: []}
    with EngineUnderTest(model, threads=2) as engine, PeerProcess("llama.cpp", python) as peer:
        peer.call("open", path=str(path), threads=2)
        for text in sorted(TEXTS.glob("*.txt")):
            ids = engine.tokenizer.encode(text.read_text())
            truth = reference.logits(np.asarray(ids, np.int32))
            ours_kl.append(divergence(truth, engine.evaluate(ids)))
            for flash, found in peer_kl.items():
                found.append(divergence(truth, peer_logits(peer, ids, flash)))
    ours = np.concatenate(ours_kl)
    peers = {flash: np.concatenate(found) for flash, found in peer_kl.items()}
    best = min(peers.values(), key=lambda values: float(values.mean()))
    low, high = bootstrap_ratio(ours, best)
    return {
        "figure": "kl_divergence",
        "model": model,
        "tokens": len(ours),
        "value": float(ours.mean()),
        "unit": "nats",
        "peer": float(best.mean()),
        "ratio": float(ours.mean() / best.mean()),
        "ratio_low": low,
        "ratio_high": high,
    }


def report(rows: list[dict[str, object]]) -> str:
    lines = [
        "# Accuracy",
        "",
        "Mean KL divergence (nats per token) to an fp32 forward pass of the same dequantised file, f16 KV on both sides, over the",
        "texts in `benchmarks/texts` (prose and code). The peer is llama.cpp, built natively, flash attention on or off, the better",
        "counted. The interval is a 95 % bootstrap over tokens. Made by `make quality`.",
        "",
        "| model | tokens | Edgewise | llama.cpp | ratio | interval |",
        "|---|---:|---:|---:|---:|---|",
    ]
    lines += [
        f"| {r['model']} | {r['tokens']} | {r['value']:.6f} | {r['peer']:.6f} | {r['ratio']:.3f} | {r['ratio_low']:.3f}-{r['ratio_high']:.3f} |"
        for r in rows
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", default=MODELS)
    rows = []
    for model in parser.parse_args().models:
        rows.append(measure(model))
        print(json.dumps(rows[-1]), flush=True)
    REPORT.write_text(report(rows))


if __name__ == "__main__":
    main()
