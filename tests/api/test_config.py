"""config.resolve and hardware facts: every "auto" decided within what the machine has, and refusals with both numbers."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgewise.config import (
    AUTO_NUM_SEQS,
    HEADROOM_BYTES,
    MIB,
    EngineOptions,
    ModelFacts,
    ServerOptions,
    from_mapping,
    kv_bytes_per_block,
    resolve,
)
from edgewise.core.errors import ConfigError
from edgewise.core.spec import AttentionSpec, DecoderSpec, LayerSpec, MlpSpec
from edgewise.hardware import HardwareFacts, read_hardware

GIB = 1024 * MIB


def small_spec(*, max_positions: int = 8192, num_layers: int = 30) -> DecoderSpec:
    attention = AttentionSpec(num_heads=9, num_kv_heads=3, head_dim=64, value_dim=64, scale=0.125, rope=None)
    layer = LayerSpec(attention, MlpSpec(hidden_dim=1536, activation="silu"))
    return DecoderSpec(
        architecture="llama", vocab_size=49152, embed_dim=576, max_positions=max_positions, layers=(layer,) * num_layers,
        norm="rms", norm_eps=1e-5, tied_head=True,
    )  # fmt: skip


def facts(**changes: int) -> ModelFacts:
    spec = small_spec(**changes)
    return ModelFacts(spec, file_bytes=100 * MIB, kv_bytes_per_block=kv_bytes_per_block(spec))


def machine(
    available: int = 20 * GIB, *, cpus: int = 2, quota: float | None = None, limit: int | None = None
) -> HardwareFacts:
    return HardwareFacts(cpus, quota, 24 * GIB, available, limit)


def test_kv_bytes_count_keys_and_values_of_all_layers():
    assert kv_bytes_per_block(small_spec(num_layers=30)) == 30 * 3 * (64 + 64) * 32 * 2


def test_auto_gives_every_sequence_the_full_window_where_memory_allows():
    got = resolve(EngineOptions(), facts(), machine())
    assert got.max_model_len == 8192
    assert got.num_blocks == AUTO_NUM_SEQS * 8192 // 32
    assert got.max_num_seqs == AUTO_NUM_SEQS
    assert got.max_num_batched_tokens == 512
    assert got.max_input_len == 8192
    assert got.threads == 2


def test_auto_shrinks_to_a_small_machine():
    """Half of the room left goes to KV; the window and the number of sequences follow."""
    model = facts()
    got = resolve(EngineOptions(), model, machine(HEADROOM_BYTES + 100 * MIB + 100 * MIB))
    assert got.kv_bytes <= 50 * MIB
    assert got.kv_bytes > 49 * MIB
    assert got.max_model_len == got.num_blocks * 32 < 8192
    assert got.max_num_seqs == got.max_model_len // 1024 == 2


@given(
    available=st.integers(0, 64 * GIB),
    layers=st.integers(1, 80),
    window=st.integers(1, 1 << 18),
    num_seqs=st.none() | st.integers(1, 64),
)
def test_whatever_resolve_accepts_fits(available: int, layers: int, window: int, num_seqs: int | None):
    model, hardware = facts(max_positions=window, num_layers=layers), machine(available)
    try:
        got = resolve(EngineOptions(max_num_seqs=num_seqs), model, hardware)
    except ConfigError as error:
        assert "does not fit" in error.message
        return
    assert got.kv_bytes + got.weights_bytes + HEADROOM_BYTES <= available
    assert 1 <= got.max_model_len <= min(window, got.num_blocks * 32)
    assert got.max_num_seqs <= got.max_num_batched_tokens
    assert got.max_num_seqs <= got.max_output_rows <= got.max_num_batched_tokens


def test_an_explicit_length_that_cannot_fit_is_refused_with_both_numbers():
    model = facts()
    room = HEADROOM_BYTES + 100 * MIB + 10 * model.kv_bytes_per_block
    with pytest.raises(ConfigError, match=r"max_model_len \(4096\).* only 320 tokens"):
        resolve(EngineOptions(max_model_len=4096), model, machine(room))
    assert resolve(EngineOptions(max_model_len=320), model, machine(room)).num_blocks == 10


def test_an_explicit_length_must_fit_explicit_blocks():
    with pytest.raises(ConfigError, match=r"max_model_len \(4096\).*num_blocks \(16\) holds 512") as caught:
        resolve(EngineOptions(max_model_len=4096, num_blocks=16), facts(), machine())
    assert "128" in str(caught.value.hint)
    assert resolve(EngineOptions(num_blocks=16), facts(), machine()).max_model_len == 512


def test_a_length_beyond_the_models_window_is_refused():
    with pytest.raises(ConfigError, match=r"16384.*8192"):
        resolve(EngineOptions(max_model_len=16384), facts(), machine())


def test_blocks_that_do_not_fit_are_refused():
    with pytest.raises(ConfigError, match=r"num_blocks \(1000000\)"):
        resolve(EngineOptions(num_blocks=1_000_000), facts(), machine())


def test_a_model_larger_than_memory_is_refused():
    with pytest.raises(ConfigError, match="100 MiB"):
        resolve(EngineOptions(), facts(), machine(200 * MIB))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            EngineOptions(max_num_seqs=8, max_num_batched_tokens=4),
            r"max_num_batched_tokens \(4\).*max_num_seqs \(8\)",
        ),
        (
            EngineOptions(max_model_len=512, max_input_len=600),
            r"max_input_len \(600\).*max_model_len \(512\)",
        ),
        (EngineOptions(threads=0), "threads"),
        (EngineOptions(num_blocks=True), "num_blocks"),
        (EngineOptions(max_model_len="4096"), "max_model_len"),  # type: ignore[arg-type]
        (EngineOptions(block_size=16), "block_size must be 32"),
        (EngineOptions(scheduling_policy="lmp"), "scheduling_policy"),  # type: ignore[arg-type]
    ],
)
def test_bad_values_are_refused_by_name(options: EngineOptions, said: str):
    with pytest.raises(ConfigError, match=said):
        resolve(options, facts(), machine())


def test_unknown_options_are_errors_with_a_suggestion():
    with pytest.raises(ConfigError, match="max_model_lne") as caught:
        from_mapping(EngineOptions, {"max_model_lne": 1})
    assert caught.value.hint == "did you mean 'max_model_len'?"
    assert from_mapping(ServerOptions, {"port": 1234}).port == 1234


def test_the_outcome_is_logged_once_with_what_was_automatic(caplog: pytest.LogCaptureFixture):
    with caplog.at_level(logging.INFO, "edgewise.config"):
        resolve(EngineOptions(threads=3), facts(), machine())
    (line,) = (record.getMessage() for record in caplog.records)
    assert "threads=3," in line
    assert "max_model_len=8192 (auto)" in line


@pytest.mark.parametrize(
    ("cpus", "quota", "threads"), [(8, None, 8), (8, 2.0, 2), (8, 2.9, 2), (8, 0.5, 1), (2, 16.0, 2)]
)
def test_threads_are_affinity_within_quota(cpus: int, quota: float | None, threads: int):
    assert machine(cpus=cpus, quota=quota).usable_cpus == threads


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")


MEMINFO = "MemTotal:       16384000 kB\nMemFree:         1000000 kB\nMemAvailable:   12288000 kB"


def test_cgroup_v2_limits_are_the_tightest_on_the_way_up(tmp_path: Path):
    write(
        tmp_path,
        {
            "proc/meminfo": MEMINFO,
            "proc/self/cgroup": "0::/a/b",
            "cg/a/cpu.max": "150000 100000",
            "cg/a/b/cpu.max": "max 100000",
            "cg/a/memory.max": "max",
            "cg/a/b/memory.max": str(GIB),
            "cg/a/b/memory.current": str(600 * MIB),
            "cg/a/b/memory.stat": f"anon 1\ninactive_file {200 * MIB}",
        },
    )
    got = read_hardware(tmp_path / "proc", tmp_path / "cg")
    assert got.cpu_quota == 1.5
    assert got.available_memory_bytes == 12288000 * 1024
    assert got.memory_limit_bytes == GIB
    assert got.memory_limit_used_bytes == 400 * MIB
    assert got.usable_memory_bytes == GIB - 400 * MIB


def test_cgroup_v1_limits(tmp_path: Path):
    write(
        tmp_path,
        {
            "proc/meminfo": MEMINFO,
            "proc/self/cgroup": "4:memory:/box\n2:cpu,cpuacct:/box\n0::/",
            "cg/cpu,cpuacct/box/cpu.cfs_quota_us": "250000",
            "cg/cpu,cpuacct/box/cpu.cfs_period_us": "100000",
            "cg/memory/memory.limit_in_bytes": "9223372036854771712",
            "cg/memory/box/memory.limit_in_bytes": str(2 * GIB),
            "cg/memory/box/memory.usage_in_bytes": str(GIB),
            "cg/memory/box/memory.stat": f"inactive_file 5\ntotal_inactive_file {MIB}",
        },
    )
    got = read_hardware(tmp_path / "proc", tmp_path / "cg")
    assert got.cpu_quota == 2.5
    assert got.usable_memory_bytes == GIB + MIB


def test_a_container_whose_group_path_is_the_hosts_reads_the_mounted_root(tmp_path: Path):
    write(
        tmp_path,
        {
            "proc/meminfo": MEMINFO,
            "proc/self/cgroup": "0::/system.slice/docker-123.scope",
            "cg/cpu.max": "100000 100000",
            "cg/memory.max": str(3 * GIB),
            "cg/memory.current": "0",
        },
    )
    got = read_hardware(tmp_path / "proc", tmp_path / "cg")
    assert (got.cpu_quota, got.memory_limit_bytes) == (1.0, 3 * GIB)


def test_no_groups_no_limits(tmp_path: Path):
    write(tmp_path, {"proc/meminfo": MEMINFO})
    got = read_hardware(tmp_path / "proc", tmp_path / "cg")
    assert (got.cpu_quota, got.memory_limit_bytes, got.memory_limit_used_bytes) == (None, None, 0)
    assert got.usable_memory_bytes == 12288000 * 1024


def test_this_machine_can_be_read():
    got = read_hardware()
    assert 1 <= got.usable_cpus <= got.num_cpus
    assert 0 < got.usable_memory_bytes <= got.total_memory_bytes
