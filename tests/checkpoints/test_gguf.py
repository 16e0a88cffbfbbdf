"""GGUF files: what is read, and how every kind of damage is refused."""

from __future__ import annotations

import random
import struct
import time
import tracemalloc
from pathlib import Path

import gguf
import numpy as np
import pytest

from edgewise.architectures import describe
from edgewise.checkpoints import open_checkpoint
from edgewise.core.errors import CheckpointError, EdgewiseError, ModelNotFoundError, UnsupportedModelError
from tests.support.tiny_gguf import TinyModel, tensor_shapes, vocabulary, write_tiny_gguf


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_gguf(tmp_path_factory.mktemp("gguf") / "tiny.gguf", dtype="Q8_0")


def test_reads_what_the_gguf_package_wrote(tiny: Path) -> None:
    checkpoint, theirs = open_checkpoint(tiny), gguf.GGUFReader(tiny)
    assert set(checkpoint.tensors) == {tensor.name for tensor in theirs.tensors}
    for tensor in theirs.tensors:
        info = checkpoint.tensors[tensor.name]
        assert info.shape == tuple(reversed([int(n) for n in tensor.shape]))
        assert info.dtype == tensor.tensor_type.name
        assert np.array_equal(checkpoint.raw(tensor.name), tensor.data.reshape(-1).view(np.uint8))
    for name, value in theirs.fields.items():
        if not name.startswith("GGUF."):
            assert checkpoint.metadata[name] == value.contents(), name


def test_values_have_the_tensors_shape(tiny: Path) -> None:
    checkpoint = open_checkpoint(tiny)
    for name, (shape, _) in tensor_shapes(TinyModel(dtype="Q8_0")).items():
        assert checkpoint.dequantize(name).shape == shape


def test_raw_bytes_are_read_only(tiny: Path) -> None:
    with pytest.raises(ValueError, match="read-only"):
        open_checkpoint(tiny).raw("token_embd.weight")[0] = 1


def test_arrays_outlive_the_checkpoint(tiny: Path) -> None:
    checkpoint = open_checkpoint(tiny)
    raw = checkpoint.raw("token_embd.weight")
    before = int(raw.sum())
    checkpoint.close()
    del checkpoint
    assert int(raw.sum()) == before


def test_a_folder_with_one_model_is_that_model(tiny: Path) -> None:
    (tiny.parent / "mmproj-tiny.gguf").write_bytes(b"not looked at")
    assert open_checkpoint(tiny.parent).path == tiny


def test_folders_without_or_with_several_models(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError, match=r"no \.gguf"):
        open_checkpoint(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(UnsupportedModelError, match="safetensors"):
        open_checkpoint(tmp_path)
    for name in ("a.gguf", "b.gguf"):
        (tmp_path / name).write_bytes(b"x")
    with pytest.raises(CheckpointError, match=r"a\.gguf, b\.gguf"):
        open_checkpoint(tmp_path)
    with pytest.raises(ModelNotFoundError, match="no such file"):
        open_checkpoint(tmp_path / "missing.gguf")


# --- damage -------------------------------------------------------------------------------------------------------------------


def text(value: bytes) -> bytes:
    return struct.pack("<Q", len(value)) + value


def key(name: bytes, kind: int, value: bytes) -> bytes:
    return text(name) + struct.pack("<I", kind) + value


def tensor(name: bytes, dims: list[int], kind: int = 0, offset: int = 0) -> bytes:
    return text(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, offset)


def gguf_bytes(
    keys: list[bytes] = [],  # noqa: B006 - never changed
    tensors: list[bytes] = [],  # noqa: B006
    *,
    data: int = 0,
    version: int = 3,
    num_keys: int | None = None,
    num_tensors: int | None = None,
) -> bytes:
    counts = struct.pack(
        "<IQQ",
        version,
        len(tensors) if num_tensors is None else num_tensors,
        len(keys) if num_keys is None else num_keys,
    )
    header = b"GGUF" + counts + b"".join(keys) + b"".join(tensors)
    return header + bytes(-len(header) % 32) + bytes(data)


STRING, ARRAY, U32 = 8, 9, 4
HUGE = 2**60

DAMAGED: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "magic: the file is empty"),
    "short": (b"GG", "magic: needs 8 bytes"),
    "not gguf": (b"PK\3\4" + bytes(40), "magic: starts with b'PK"),
    "big-endian magic": (b"FUGG" + bytes(40), "big-endian"),
    "big-endian numbers": (
        b"GGUF" + struct.pack(">IQQ", 3, 0, 0) + bytes(8),
        "version: the byte order is reversed",
    ),
    "version 0": (gguf_bytes(version=0), "version: version 0 cannot be read"),
    "version 1": (gguf_bytes(version=1), "version: version 1 cannot be read"),
    "version 9": (gguf_bytes(version=9), "version: version 9 cannot be read"),
    "too many tensors": (gguf_bytes(num_tensors=HUGE), f"tensor count: {HUGE} tensors cannot be right"),
    "too many keys": (gguf_bytes(num_keys=HUGE), f"metadata count: {HUGE} metadata keys cannot be right"),
    "long key": (gguf_bytes([struct.pack("<Q", HUGE) + bytes(40)]), f"metadata key 0: {HUGE} characters"),
    "long string": (
        gguf_bytes([key(b"a", STRING, struct.pack("<Q", HUGE))]),
        f"metadata key 'a': {HUGE} characters",
    ),
    "long array": (
        gguf_bytes([key(b"a", ARRAY, struct.pack("<IQ", U32, HUGE))]),
        f"'a': {HUGE} values cannot be right",
    ),
    "many strings": (
        gguf_bytes([key(b"a", ARRAY, struct.pack("<IQ", STRING, HUGE))]),
        f"'a': {HUGE} strings",
    ),
    "string in array runs out": (
        gguf_bytes([key(b"a", ARRAY, struct.pack("<IQ", STRING, 2) + text(b"x") + struct.pack("<Q", 999))]),
        "'a': a string of 999 bytes runs beyond the end",
    ),
    "nested array": (gguf_bytes([key(b"a", ARRAY, struct.pack("<IQ", ARRAY, 1))]), "'a': nested arrays"),
    "unknown value type": (gguf_bytes([key(b"a", 77, bytes(8))]), "'a': unknown value type 77"),
    "odd key": (gguf_bytes([key(b"\xff\xfe", U32, bytes(4))]), "metadata key 0: the name is not valid UTF-8"),
    "key twice": (gguf_bytes([key(b"a", U32, bytes(4))] * 2), "metadata key 'a': given twice"),
    "alignment": (gguf_bytes([key(b"general.alignment", U32, struct.pack("<I", 48))]), "general.alignment"),
    "unknown tensor type": (
        gguf_bytes([], [tensor(b"t", [32], kind=4)], data=64),
        "tensor 't': unknown tensor type 4",
    ),
    "no dimensions": (gguf_bytes([], [tensor(b"t", [])], data=64), "tensor 't': has 0 dimensions"),
    "five dimensions": (gguf_bytes([], [tensor(b"t", [1] * 5)], data=64), "tensor 't': has 5 dimensions"),
    "empty dimension": (
        gguf_bytes([], [tensor(b"t", [4, 0])], data=64),
        "tensor 't': has an empty dimension",
    ),
    "half a block": (gguf_bytes([], [tensor(b"t", [33], kind=8)], data=64), "tensor 't': rows of 33 values"),
    "past the end": (gguf_bytes([], [tensor(b"t", [17])], data=64), "tensor 't': ends at byte 132"),
    "far past the end": (gguf_bytes([], [tensor(b"t", [2**62, 2**62])], data=64), "tensor 't': ends at byte"),
    "misaligned": (gguf_bytes([], [tensor(b"t", [4], offset=4)], data=64), "tensor 't': offset 4"),
    "tensor twice": (gguf_bytes([], [tensor(b"t", [4])] * 2, data=64), "tensor 't': given twice"),
    "overlap": (
        gguf_bytes([], [tensor(b"t", [16]), tensor(b"u", [8], offset=32)], data=96),
        "tensor 'u': overlaps tensor 't'",
    ),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_damage_is_named_at_once_and_costs_no_memory(name: str, tmp_path: Path) -> None:
    data, message = DAMAGED[name]
    path = tmp_path / "odd.gguf"
    path.write_bytes(data)
    tracemalloc.start()
    start = time.perf_counter()
    with pytest.raises(CheckpointError) as caught:
        open_checkpoint(path)
    elapsed, (_, peak) = time.perf_counter() - start, tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert str(caught.value).startswith(f"{path}: ")
    assert message in str(caught.value)
    assert elapsed < 1.0
    assert peak < 2 << 20


def test_the_undamaged_pattern_is_fine(tmp_path: Path) -> None:
    path = tmp_path / "fine.gguf"
    path.write_bytes(gguf_bytes([key(b"a", U32, bytes(4))], [tensor(b"t", [16])], data=64, version=2))
    assert open_checkpoint(path).tensors["t"].shape == (16,)


def test_every_truncation_is_refused(tiny: Path, tmp_path: Path) -> None:
    whole = tiny.read_bytes()
    path = tmp_path / "cut.gguf"
    for length in [*range(0, 200, 7), *range(200, len(whole), len(whole) // 60), len(whole) - 33]:
        path.write_bytes(whole[:length])
        with pytest.raises(CheckpointError):
            open_checkpoint(path)


def test_random_damage_to_the_header_never_crashes(tiny: Path, tmp_path: Path) -> None:
    rng = random.Random(7)
    whole = tiny.read_bytes()
    path = tmp_path / "damaged.gguf"
    for _ in range(300):
        data = bytearray(whole)
        for _ in range(rng.randint(1, 4)):
            data[rng.randrange(6000)] = rng.randrange(256)
        path.write_bytes(data)
        try:
            describe(open_checkpoint(path))
        except EdgewiseError as error:
            assert str(path) in str(error)


# --- split files --------------------------------------------------------------------------------------------------------------


def write_split(folder: Path, count: int = 3, *, promised: int | None = None) -> Path:
    """A model in `count` parts of one tensor each, as llama.cpp's splitter lays them out. Returns the first part."""
    for number in range(count):
        writer = gguf.GGUFWriter(folder / f"m-{number + 1:05d}-of-{count:05d}.gguf", "llama")
        writer.add_uint16("split.no", number)
        writer.add_uint16("split.count", count)
        writer.add_int32("split.tensors.count", count if promised is None else promised)
        if number == 0:
            writer.add_token_list(vocabulary())
        writer.add_tensor(f"t{number}", np.full(8, number, dtype=np.float32))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
    return folder / f"m-00001-of-{count:05d}.gguf"


def test_split_parts_are_one_model(tmp_path: Path) -> None:
    checkpoint = open_checkpoint(write_split(tmp_path))
    assert [float(checkpoint.dequantize(f"t{i}")[0]) for i in range(3)] == [0.0, 1.0, 2.0]
    assert len(checkpoint.files) == 3
    assert len(checkpoint.metadata["tokenizer.ggml.tokens"]) == len(vocabulary())
    assert open_checkpoint(tmp_path).path == checkpoint.path


def test_a_missing_last_part_is_named(tmp_path: Path) -> None:
    first = write_split(tmp_path)
    (tmp_path / "m-00003-of-00003.gguf").unlink()
    with pytest.raises(CheckpointError, match=r"m-00003-of-00003\.gguf: part 3 of 3 .* missing"):
        open_checkpoint(first)


def test_a_later_part_points_to_the_first(tmp_path: Path) -> None:
    write_split(tmp_path)
    with pytest.raises(CheckpointError, match=r"split\.no.* part 2") as caught:
        open_checkpoint(tmp_path / "m-00002-of-00003.gguf")
    assert caught.value.hint == "open the first part, m-00001-of-00003.gguf"


def test_parts_in_the_wrong_place_are_refused(tmp_path: Path) -> None:
    first = write_split(tmp_path)
    (tmp_path / "m-00002-of-00003.gguf").replace(tmp_path / "m-00003-of-00003.gguf")
    write_part = first.read_bytes()
    (tmp_path / "m-00002-of-00003.gguf").write_bytes(write_part)
    with pytest.raises(CheckpointError, match=r"split\.no.*says part 0 of 3, expected 1"):
        open_checkpoint(first)


def test_a_wrong_tensor_total_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"promises 7 tensors, the parts hold 3"):
        open_checkpoint(write_split(tmp_path, promised=7))


def test_a_renamed_part_is_refused(tmp_path: Path) -> None:
    first = write_split(tmp_path)
    renamed = first.replace(tmp_path / "model.gguf")
    with pytest.raises(CheckpointError, match=r"split\.count"):
        open_checkpoint(renamed)
