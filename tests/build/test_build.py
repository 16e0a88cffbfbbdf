"""Building engine directories from tiny models: contents, layouts, templates, refusals, crashes, and several builders at once."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgewise.architectures import describe
from edgewise.build import EngineDir, build_engine_dir, engine_dir_for, open_engine_dir, verify_weights
from edgewise.build.cache import cache_entries, evict
from edgewise.build.convert import CONVERSIONS
from edgewise.build.engine_dir import load_engine_dir, seal
from edgewise.build.packing import PLAIN
from edgewise.build.staging import building_lock, lock_path
from edgewise.checkpoints import open_checkpoint
from edgewise.checkpoints.dequantize import dequantize
from edgewise.checkpoints.files import exclusive_lock
from edgewise.checkpoints.progress import Progress
from edgewise.checkpoints.settings import StoreSettings
from edgewise.core.errors import ConfigError, EngineDirError
from tests.build.plain_packer import PlainPacker, plain_tools
from tests.support.tiny_gguf import ARCHITECTURES, TEMPLATE, write_tiny_gguf

WIDE: dict[str, Any] = {"embed_dim": 256, "hidden_dim": 256, "head_dim": 64}


def values_of(engine: EngineDir, name: str) -> np.ndarray:
    """f32 [rows, cols] of a built tensor."""
    tensor = engine.tensors[name]
    data = engine.weights[tensor.offset : tensor.offset + tensor.nbytes]
    if tensor.layout == PLAIN:
        return data.view(np.float32).reshape(1, -1)
    rows = PlainPacker().unpack(tensor.format, tensor.layout, tensor.rows, tensor.cols, data)
    return dequantize(rows, tensor.format).reshape(tensor.rows, tensor.cols)


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_built_tensors_hold_the_checkpoints_values(name: str, tmp_path: Path) -> None:
    path = write_tiny_gguf(tmp_path / "tiny.gguf", architecture=name, dtype="Q5_0", tied=False)
    engine = build_engine_dir(path, tmp_path / "engine", layout=8, tools=plain_tools())
    checkpoint = open_checkpoint(path)
    model = describe(checkpoint)
    assert engine.spec == model.spec
    assert set(engine.tensors) == set(model.tensors)
    for canonical, source in model.tensors.items():
        expected = checkpoint.dequantize(source.name)[source.rows or slice(None)]
        assert np.array_equal(values_of(engine, canonical), np.atleast_2d(expected)), canonical


@pytest.mark.parametrize("dtype", ["F32", "F16", "BF16", "Q4_K", "Q6_K", *CONVERSIONS])
def test_types_are_kept_or_converted(dtype: str, tmp_path: Path) -> None:
    path = write_tiny_gguf(tmp_path / "tiny.gguf", dtype=dtype, **WIDE)
    engine = build_engine_dir(path, tmp_path / "engine", layout=16, tools=plain_tools())
    target = CONVERSIONS[dtype].target if dtype in CONVERSIONS else dtype
    assert engine.tensors["layers.0.mlp.up.weight"].format == target
    assert engine.tensors["layers.0.attn_norm.weight"].layout == PLAIN
    if dtype in CONVERSIONS:
        note = engine.conversions["layers.0.mlp.up.weight"]
        assert (note["from"], note["to"]) == (dtype, target)
        expected = open_checkpoint(path).dequantize("blk.0.ffn_up.weight")
        error = np.abs(values_of(engine, "layers.0.mlp.up.weight") - expected).max()
        assert note["max_abs"] == pytest.approx(error, abs=1e-12)
    else:
        assert engine.conversions == {}


def test_large_tensors_are_packed_in_slabs_that_join(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_tiny_gguf(tmp_path / "tiny.gguf", dtype="Q4_1")
    whole = build_engine_dir(path, tmp_path / "whole", layout=8, tools=plain_tools())
    monkeypatch.setattr("edgewise.build.weights_file.SLAB_BYTES", 64)
    slabs = build_engine_dir(path, tmp_path / "slabs", layout=8, tools=plain_tools())
    assert np.array_equal(whole.weights, slabs.weights)


def test_tensors_are_aligned_and_apart(tmp_path: Path) -> None:
    path = write_tiny_gguf(tmp_path / "tiny.gguf", architecture="qwen2")
    engine = build_engine_dir(path, tmp_path / "engine", layout=8, tools=plain_tools())
    end = 0
    for tensor in engine.tensors.values():
        assert tensor.offset % 64 == 0
        assert 0 <= tensor.offset - end < 64
        end = tensor.offset + tensor.nbytes
    assert end == len(engine.weights)


def test_texts_beside_the_weights(tmp_path: Path) -> None:
    keys = {"general.sampling.temp": 0.6, "tokenizer.chat_template.tool_use": "tools!"}
    path = write_tiny_gguf(tmp_path / "tiny.gguf", extra_keys=keys)
    engine = build_engine_dir(path, tmp_path / "engine", layout=8, tools=plain_tools())
    assert engine.chat_template == TEMPLATE
    assert engine.generation_config["temperature"] == pytest.approx(0.6)
    assert engine.generation_config["eos_token_id"] == [
        open_checkpoint(path).metadata["tokenizer.ggml.eos_token_id"]
    ]
    assert (engine.path / "additional_chat_templates" / "tool_use.jinja").read_text() == "tools!"
    assert engine.file_bytes == path.stat().st_size
    assert engine.provenance["path"] == str(path)
    assert engine.provenance["name"] == "Tiny llama"


def test_a_model_without_a_template(tmp_path: Path) -> None:
    path = write_tiny_gguf(tmp_path / "tiny.gguf", template=None)
    assert build_engine_dir(path, tmp_path / "e", layout=8, tools=plain_tools()).chat_template is None


def test_repacking_is_exact_and_keeps_the_fingerprint(tmp_path: Path) -> None:
    settings = StoreSettings(data_dir=tmp_path / "data")
    path = write_tiny_gguf(tmp_path / "tiny.gguf", dtype="Q8_0")
    first = build_engine_dir(path, tmp_path / "engine", layout=8, tools=plain_tools())
    wide = open_engine_dir(first.path, layout=16, settings=settings, tools=plain_tools())
    assert (wide.layout, wide.fingerprint) == (16, first.fingerprint)
    assert wide.chat_template == first.chat_template
    direct = build_engine_dir(path, tmp_path / "direct", layout=16, tools=plain_tools())
    assert np.array_equal(wide.weights, direct.weights)
    again = plain_tools()
    open_engine_dir(first.path, layout=16, settings=settings, tools=again)
    assert (
        isinstance(again.packer, PlainPacker) and again.packer.calls == 0
    )  # the second time it is in the cache


def test_fingerprints_tell_models_apart(tmp_path: Path) -> None:
    prints = {
        build_engine_dir(
            write_tiny_gguf(tmp_path / f"{seed}.gguf", seed=seed),
            tmp_path / str(seed),
            layout=8,
            tools=plain_tools(),
        ).fingerprint
        for seed in (1, 2)
    }
    assert len(prints) == 2


def test_progress_ends_at_the_total(tmp_path: Path) -> None:
    seen: list[Progress] = []
    path = write_tiny_gguf(tmp_path / "tiny.gguf")
    build_engine_dir(path, tmp_path / "engine", layout=8, tools=plain_tools(), progress=seen.append)
    built = [p for p in seen if p.stage == "build"]
    assert built[-1].done_bytes == built[-1].total_bytes
    assert [p.done_bytes for p in built] == sorted(p.done_bytes for p in built)


# --- targets ------------------------------------------------------------------------------------------------------------------


def test_an_engine_directory_is_replaced_other_folders_are_not(tmp_path: Path) -> None:
    path = write_tiny_gguf(tmp_path / "tiny.gguf")
    out = tmp_path / "engine"
    out.mkdir()
    build_engine_dir(path, out, layout=8, tools=plain_tools())  # an empty folder is fine
    other = write_tiny_gguf(tmp_path / "other.gguf", seed=5)
    replaced = build_engine_dir(other, out, layout=8, tools=plain_tools())
    assert replaced.provenance["path"] == str(other)
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters" / "dear.txt").write_text("do not lose me")
    with pytest.raises(EngineDirError, match="not an engine directory"):
        build_engine_dir(path, tmp_path / "letters", layout=8, tools=plain_tools())
    assert (tmp_path / "letters" / "dear.txt").exists()


def test_a_failing_build_leaves_the_old_directory_and_no_rest(tmp_path: Path) -> None:
    out = tmp_path / "engine"
    build_engine_dir(write_tiny_gguf(tmp_path / "tiny.gguf"), out, layout=8, tools=plain_tools())

    class Broken(PlainPacker):
        def pack(self, *args: Any) -> Any:
            raise RuntimeError("no more")

    with pytest.raises(RuntimeError, match="no more"):
        build_engine_dir(
            write_tiny_gguf(tmp_path / "b.gguf", seed=3), out, layout=8, tools=plain_tools_with(Broken())
        )
    assert load_engine_dir(out).provenance["path"].endswith("tiny.gguf")
    assert {p.name for p in tmp_path.iterdir()} == {"tiny.gguf", "b.gguf", "engine"}


def plain_tools_with(packer: PlainPacker) -> Any:
    tools = plain_tools()
    return type(tools)(packer, tools.save_tokenizer)


def test_a_full_disk_is_said_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_tiny_gguf(tmp_path / "tiny.gguf")
    monkeypatch.setattr("edgewise.build.build.free_bytes", lambda _: 1000)
    with pytest.raises(EngineDirError, match=r"needs \d+ bytes, but only 1000 are free"):
        build_engine_dir(path, tmp_path / "engine", layout=8, tools=plain_tools())
    assert not (tmp_path / "engine").exists()


def test_a_disk_that_fills_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    path = write_tiny_gguf(tmp_path / "tiny.gguf")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(EngineDirError, match=r"engine: cannot be written: No space left") as caught:
        build_engine_dir(path, tmp_path / "engine", layout=8, tools=plain_tools())
    assert "free some space" in (caught.value.hint or "")
    assert [p.name for p in tmp_path.iterdir()] == ["tiny.gguf"]


def test_unknown_layouts(tmp_path: Path) -> None:
    path = write_tiny_gguf(tmp_path / "tiny.gguf")
    with pytest.raises(ConfigError, match="layout"):
        build_engine_dir(path, tmp_path / "engine", layout=5, tools=plain_tools())


# --- damage -------------------------------------------------------------------------------------------------------------------


@pytest.fixture
def engine_path(tmp_path: Path) -> Path:
    path = write_tiny_gguf(tmp_path / "tiny.gguf", dtype="Q8_0")
    return build_engine_dir(path, tmp_path / "engine", layout=8, tools=plain_tools()).path


def edit_header(path: Path, **changes: Any) -> None:
    header = json.loads((path / "engine.json").read_text())
    (path / "engine.json").write_text(json.dumps({**header, **changes}))


def cut(path: Path, length: int) -> None:
    os.truncate(path, length)


def flip(path: Path, offset: int) -> None:
    data = bytearray(path.read_bytes())
    data[offset] ^= 1
    path.write_bytes(data)


DAMAGE = {
    "no header": (lambda p: (p / "engine.json").unlink(), "not an engine directory"),
    "half a header": (lambda p: cut(p / "engine.json", 500), "cannot be read"),
    "foreign": (lambda p: (p / "engine.json").write_text('{"engine": "trt"}'), "was not written by Edgewise"),
    "newer": (
        lambda p: edit_header(p, version=99, edgewise_version="7.0"),
        "made by Edgewise 7.0, is newer than",
    ),
    "older": (lambda p: edit_header(p, version=0), "version 0"),
    "edited": (lambda p: edit_header(p, layout=16), "checksum does not match"),
    "no weights": (lambda p: (p / "weights.bin").unlink(), "weights.bin is missing"),
    "truncated weights": (lambda p: cut(p / "weights.bin", 64 * 100), "truncated"),
    "empty weights": (lambda p: cut(p / "weights.bin", 0), "weights.bin is missing or cannot be mapped"),
    "damaged weights": (lambda p: flip(p / "weights.bin", 10), "'embed.weight' in weights.bin is damaged"),
    "no tokenizer": (lambda p: (p / "tokenizer.json").unlink(), "tokenizer.json is missing"),
    "damaged tokenizer": (lambda p: flip(p / "tokenizer.json", 0), "tokenizer.json is damaged"),
    "damaged template": (lambda p: flip(p / "chat_template.jinja", 5), "chat_template.jinja is damaged"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damage_is_named(name: str, engine_path: Path) -> None:
    damage, message = DAMAGE[name]
    damage(engine_path)
    with pytest.raises(EngineDirError, match=message) as caught:
        load_engine_dir(engine_path)
    assert str(engine_path) in str(caught.value)
    assert caught.value.hint


def test_verification_finds_what_sampling_cannot(engine_path: Path) -> None:
    verify_weights(load_engine_dir(engine_path))
    tensor = load_engine_dir(engine_path).tensors["embed.weight"]
    flip(engine_path / "weights.bin", tensor.offset + tensor.nbytes - 1)
    damaged = load_engine_dir(engine_path)  # beyond the sampled bytes
    with pytest.raises(EngineDirError, match=r"'embed\.weight' .* damaged"):
        verify_weights(damaged)


def test_a_header_of_a_later_minor_format_is_not_guessed_at(engine_path: Path) -> None:
    """A checksum that matches does not make unknown fields of the spec understood."""
    from edgewise.build.engine_dir import seal

    header = json.loads((engine_path / "engine.json").read_text())
    header["spec"]["flux"] = 1
    (engine_path / "engine.json").write_bytes(seal(header))
    with pytest.raises(EngineDirError, match="unknown field 'flux'"):
        load_engine_dir(engine_path)


# --- the cache ----------------------------------------------------------------------------------------------------------------


def settings_for(tmp_path: Path, **changes: Any) -> StoreSettings:
    return StoreSettings(data_dir=tmp_path / "data", **changes)


def test_the_cache_builds_once(tmp_path: Path) -> None:
    path, tools = write_tiny_gguf(tmp_path / "tiny.gguf"), plain_tools()
    first = engine_dir_for(str(path), layout=8, settings=settings_for(tmp_path), tools=tools)
    calls = tools.packer.calls  # type: ignore[attr-defined]
    second = engine_dir_for(str(path), layout=8, settings=settings_for(tmp_path), tools=tools)
    assert first.path == second.path
    assert tools.packer.calls == calls > 0  # type: ignore[attr-defined]
    assert engine_dir_for(str(first.path), layout=8, settings=settings_for(tmp_path)).path == first.path


def test_a_changed_checkpoint_is_built_again(tmp_path: Path) -> None:
    path = write_tiny_gguf(tmp_path / "tiny.gguf", seed=1)
    first = engine_dir_for(str(path), layout=8, settings=settings_for(tmp_path), tools=plain_tools())
    write_tiny_gguf(path, seed=2)
    second = engine_dir_for(str(path), layout=8, settings=settings_for(tmp_path), tools=plain_tools())
    assert first.path != second.path
    assert first.fingerprint != second.fingerprint


def test_a_damaged_entry_is_built_again(tmp_path: Path) -> None:
    path = write_tiny_gguf(tmp_path / "tiny.gguf")
    first = engine_dir_for(str(path), layout=8, settings=settings_for(tmp_path), tools=plain_tools())
    cut(first.path / "weights.bin", 128)
    second = engine_dir_for(str(path), layout=8, settings=settings_for(tmp_path), tools=plain_tools())
    verify_weights(second)
    assert second.path == first.path


def test_weights_damaged_where_no_sample_looks_are_found_at_the_next_start(tmp_path: Path) -> None:
    path = write_tiny_gguf(tmp_path / "tiny.gguf", dtype="Q8_0")
    settings = settings_for(tmp_path)
    first = engine_dir_for(str(path), layout=8, settings=settings, tools=plain_tools())
    tensor = first.tensors["embed.weight"]
    sound = first.path / "weights.bin"
    shutil.copytree(first.path, tmp_path / "copy")
    flip(sound, tensor.offset + tensor.nbytes - 1)
    verify_weights(engine_dir_for(str(path), layout=8, settings=settings, tools=plain_tools()))  # built again
    flip(tmp_path / "copy" / "weights.bin", tensor.offset + tensor.nbytes - 1)
    with pytest.raises(EngineDirError, match=r"'embed\.weight' in weights\.bin is damaged"):
        open_engine_dir(tmp_path / "copy", layout=8)


def test_sound_weights_are_read_whole_once_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[Path] = []
    monkeypatch.setattr("edgewise.build.verified.verify_weights", lambda engine, _: reads.append(engine.path))
    path = write_tiny_gguf(tmp_path / "tiny.gguf")
    built = build_engine_dir(path, tmp_path / "engine", layout=8, tools=plain_tools()).path
    for _ in range(2):
        open_engine_dir(built, layout=8)
    assert reads == [], "the build has read them"
    copy = tmp_path / "copy"
    shutil.copytree(built, copy)
    for _ in range(2):
        open_engine_dir(copy, layout=8)
    assert reads == [copy]


@pytest.mark.parametrize(
    "change", ["files", "tensors", "provenance", "fingerprint", "spec", "weights_bytes", "layout"]
)
@pytest.mark.parametrize("value", [None, 5])
def test_a_well_sealed_header_of_something_else(change: str, value: object, engine_path: Path) -> None:
    header = json.loads((engine_path / "engine.json").read_text())
    if value is None:
        del header[change]
    else:
        header[change] = value
    (engine_path / "engine.json").write_bytes(seal(header))
    with pytest.raises(EngineDirError, match=str(engine_path)):
        load_engine_dir(engine_path)


def test_what_dead_builders_of_other_engines_left_goes_with_the_next_build(tmp_path: Path) -> None:
    settings = settings_for(tmp_path)
    dead, alive = (settings.engines_dir / f".{name}-r8-v1.0a1b2c3d.building" for name in ("dead", "alive"))
    kept = settings.engines_dir / ".notes"
    for folder in (dead, alive, kept):
        folder.mkdir(parents=True)
        (folder / "weights.bin").write_bytes(b"half")
    path = write_tiny_gguf(tmp_path / "tiny.gguf")
    with (
        building_lock(settings.engines_dir / "other"),
        exclusive_lock(lock_path(settings.engines_dir / "alive-r8-v1")),
    ):
        engine_dir_for(str(path), layout=8, settings=settings, tools=plain_tools())
    assert not dead.exists()
    assert alive.is_dir() and kept.is_dir()


def test_the_least_recently_used_entries_go(tmp_path: Path) -> None:
    paths = [write_tiny_gguf(tmp_path / f"m{seed}.gguf", seed=seed) for seed in range(3)]
    small = settings_for(tmp_path, engine_cache_bytes=int(paths[0].stat().st_size * 2.5))
    first, second = (engine_dir_for(str(p), layout=8, settings=small, tools=plain_tools()) for p in paths[:2])
    os.utime(second.path / "engine.json", (1, 1))  # the second was used longest ago
    third = engine_dir_for(str(paths[2]), layout=8, settings=small, tools=plain_tools())
    assert first.path.is_dir() and third.path.is_dir()
    assert not second.path.exists()
    assert second.weights.sum() > 0  # a process that maps it is not disturbed


def test_a_cache_in_a_folder_with_other_things_leaves_them_alone(tmp_path: Path) -> None:
    home = tmp_path / "home"
    (home / "photos").mkdir(parents=True)
    (home / "model-v2").mkdir()
    path = write_tiny_gguf(tmp_path / "tiny.gguf")
    crowded = settings_for(tmp_path, engine_cache_dir=home, engine_cache_bytes=1)
    built = engine_dir_for(str(path), layout=8, settings=crowded, tools=plain_tools())
    assert built.path.parent == home
    assert cache_entries(crowded) == [built.path]
    evict(crowded, keep=built.path)
    assert {child.name for child in home.iterdir()} == {"photos", "model-v2", built.path.name}


def test_threads_that_want_the_same_engine_share_one_build(tmp_path: Path) -> None:
    path = write_tiny_gguf(tmp_path / "tiny.gguf")
    tools = plain_tools()
    alone = plain_tools()
    engine_dir_for(str(path), layout=8, settings=StoreSettings(data_dir=tmp_path / "other"), tools=alone)
    results: list[EngineDir] = []

    def build() -> None:
        results.append(engine_dir_for(str(path), layout=8, settings=settings_for(tmp_path), tools=tools))

    threads = [threading.Thread(target=build) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({engine.path for engine in results}) == 1
    assert tools.packer.calls == alone.packer.calls  # type: ignore[attr-defined]


SLOW_BUILD = textwrap.dedent("""
    import sys, time
    from pathlib import Path
    from edgewise.build import engine_dir_for
    from edgewise.checkpoints.settings import StoreSettings
    from tests.build.plain_packer import PlainPacker, plain_tools

    class Slow(PlainPacker):
        def pack(self, *args):
            Path(sys.argv[3]).touch()
            time.sleep(float(sys.argv[4]))
            return super().pack(*args)

    tools = plain_tools()
    tools = type(tools)(Slow(), tools.save_tokenizer)
    engine = engine_dir_for(sys.argv[1], layout=8, settings=StoreSettings(data_dir=Path(sys.argv[2])), tools=tools)
    print(engine.path, tools.packer.calls)
""")


def start_build(model: Path, data: Path, started: Path, delay: float) -> subprocess.Popen[str]:
    root = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": f"{root / 'src'}{os.pathsep}{root}"}
    command = [sys.executable, "-c", SLOW_BUILD, str(model), str(data), str(started), str(delay)]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)


def wait_for(path: Path, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 60
    while not path.exists():
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.01)


def test_two_processes_share_one_build(tmp_path: Path) -> None:
    path, data = write_tiny_gguf(tmp_path / "tiny.gguf"), tmp_path / "data"
    first = start_build(path, data, tmp_path / "started", 0.05)
    wait_for(tmp_path / "started", first)
    second = start_build(path, data, tmp_path / "second", 0.05)
    outputs = [process.communicate(timeout=120)[0].split() for process in (first, second)]
    assert outputs[0][0] == outputs[1][0]
    assert [int(calls) for _, calls in outputs][1] == 0  # the second waited and found it done
    assert not (tmp_path / "second").exists()


def test_a_killed_build_leaves_nothing_that_is_trusted(tmp_path: Path) -> None:
    path, data = write_tiny_gguf(tmp_path / "tiny.gguf"), tmp_path / "data"
    process = start_build(path, data, tmp_path / "started", 30.0)  # far longer than the kill can be late
    wait_for(tmp_path / "started", process)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    left = list((data / "engines").iterdir())
    assert left and all(entry.name.startswith(".") for entry in left)
    engine = engine_dir_for(str(path), layout=8, settings=StoreSettings(data_dir=data), tools=plain_tools())
    verify_weights(engine)
    names = {entry.name for entry in (data / "engines").iterdir()}
    assert names == {engine.path.name}  # the dead builder's rest is gone
