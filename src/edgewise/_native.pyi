"""The native module: kernels, the thread pool, the KV cache and the step executor.

Arrays are taken as they are: C-contiguous and of the dtype named, anything else is a ValueError. Bad shapes, names and ranges are
ValueErrors too. The GIL is released while a step, a copy or a probe runs.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

_F32 = npt.NDArray[np.float32]
_F64 = npt.NDArray[np.float64]
_I32 = npt.NDArray[np.int32]
_I64 = npt.NDArray[np.int64]
_U8 = npt.NDArray[np.uint8]
_U16 = npt.NDArray[np.uint16]
_Ragged = tuple[_I64, _I32]
"""starts [R + 1], ids"""
_Norm = tuple[str, _F32, _F32 | None, float]
"""kind ("rms", "layer"), weight, bias, eps"""

def available_isas() -> list[str]: ...
def isa_layout(isa: str) -> int: ...
def read_bandwidth(pool: Pool, bytes: int, seconds: float) -> float: ...
def int8_peak(pool: Pool, seconds: float) -> float: ...

class Pool:
    """A team of native threads; the thread that runs a step is one of them."""

    def __init__(self, threads: int) -> None: ...
    @property
    def threads(self) -> int: ...
    def close(self) -> None: ...

class Matrix:
    """A packed weight matrix [rows, cols] over `data` (u8, 64-byte aligned), which it keeps alive."""

    def __init__(self, format: str, layout: int, rows: int, cols: int, data: _U8) -> None: ...
    @property
    def format(self) -> str: ...
    @property
    def layout(self) -> int: ...
    @property
    def rows(self) -> int: ...
    @property
    def cols(self) -> int: ...

class KvCache:
    """Keys and values of all layers in blocks of 32 tokens, float16, committed as blocks are first written.

    `layers`: (kv_heads, key_dim, value_dim) each; the dimensions are multiples of 8.
    """

    def __init__(self, layers: Sequence[tuple[int, int, int]], num_blocks: int) -> None: ...
    @property
    def num_blocks(self) -> int: ...
    @property
    def bytes_per_block(self) -> int: ...
    def copy_blocks(self, sources: _I32, targets: _I32) -> None:
        """Copy block sources[i] over targets[i], in order."""

    def export_block(self, block: int) -> bytes: ...
    def import_block(self, block: int, data: bytes) -> None: ...

class Program:
    """A model as a list of operations, built once and run once a step.

    One thread at a time builds and runs; `cancel` is for any thread. Buffers are f32 [max_rows, width] (output buffers [max_outputs,
    width]) and named by number. It keeps the pool, the cache and the matrices alive; vectors are copied.
    """

    def __init__(self, pool: Pool, isa: str, max_rows: int, max_outputs: int, cache: KvCache) -> None: ...
    @property
    def isa(self) -> str: ...
    def buffer(self, width: int) -> int: ...
    def output_buffer(self, width: int) -> int: ...
    def rope_table(self, inv_freq: _F64, scale: float) -> int:
        """cos and sin (times `scale`) of position * inv_freq[i], filled for each step's rows before anything else."""

    def embed(self, matrix: Matrix, dest: int, scale: float = 1.0) -> None:
        """Rows of `matrix` times `scale` by token id; rows given as embeddings are taken as they are."""

    def norm(
        self, source: int, dest: int, kind: str, weight: _F32, bias: _F32 | None, eps: float
    ) -> None: ...
    def linear(
        self,
        source: int,
        targets: Sequence[tuple[Matrix, _F32 | None, int, int]],
        norm: _Norm | None = None,
        accumulate: bool = False,
        scale: float = 1.0,
    ) -> None:
        """dest[:, column:column+rows] = (norm(source) @ matrix.T + bias) * scale, or += with `accumulate`.

        `targets`: (matrix, bias, dest, column) of matrices that read the same input.
        """

    def gated_mlp(
        self,
        source: int,
        gate: Matrix,
        up: Matrix,
        activation: str,
        dest: int,
        norm: _Norm | None = None,
        gate_bias: _F32 | None = None,
        up_bias: _F32 | None = None,
    ) -> None:
        """dest = activation(norm(source) @ gate.T + gate_bias) * (norm(source) @ up.T + up_bias)"""

    def mlp_up(
        self,
        source: int,
        matrix: Matrix,
        activation: str,
        dest: int,
        norm: _Norm | None = None,
        bias: _F32 | None = None,
    ) -> None:
        """dest = activation(norm(source) @ matrix.T + bias)"""

    def attention(
        self,
        layer: int,
        q: int,
        k: int,
        v: int,
        dest: int,
        num_heads: int,
        num_kv_heads: int,
        head_dim: int,
        value_dim: int,
        scale: float,
        rope_table: int | None = None,
        pairing: str = "half",
        q_norm: _F32 | None = None,
        k_norm: _F32 | None = None,
        norm_eps: float = 0.0,
        kind: str = "full",
        window: int = 0,
        soft_cap: float = 0.0,
        sinks: _F32 | None = None,
    ) -> None:
        """Norm and rotate q and k (in place), write k and v to the cache, attend. `kind`: "full", "sliding", "chunked"."""

    def add(self, source: int, dest: int, scale: float = 1.0) -> None:
        """dest += scale * source"""

    def scale(self, buffer: int, scale: float) -> None: ...
    def gather_outputs(self, source: int, dest: int) -> None:
        """The wanted rows of `source` into an output buffer."""

    def head(
        self,
        source: int,
        matrix: Matrix,
        norm: _Norm | None = None,
        bias: _F32 | None = None,
        scale: float = 1.0,
        soft_cap: float = 0.0,
    ) -> None:
        """logits = soft_cap((norm(source) @ matrix.T + bias) * scale); once per program."""

    def run(
        self,
        token_ids: _I32,
        positions: _I32,
        row_starts: _I32,
        context_lens: _I32,
        block_tables: _I32,
        output_rows: _I32,
        embeddings: tuple[_I32, _F32] | None = None,
    ) -> bool:
        """One step over T rows of S sequences: token_ids [T], positions [T], row_starts [S + 1], context_lens [S],
        block_tables [S, M], output_rows [R], embeddings (rows [N], values [N, E]).

        False when cancelled: the output is void, and so are the cache slots of this step's rows. Raises ValueError before anything
        is written when a row, id or block is out of range, RuntimeError when the pool is closed or another thread runs the program.
        """

    def rows(self, buffer: int, rows: int) -> _F32:
        """f32 [rows, width]: what the last run left in a buffer, a writable view of native memory, valid until the next run."""

    def logits(self, rows: int) -> _F32:
        """f32 [rows, V]: a writable view of native memory, valid until the next run."""

    def cancel(self) -> None:
        """End the run in progress between two operations, or the next one when none is in progress."""

    def profile(self, enable: bool) -> None:
        """Start (resetting) or stop the clock of every operation."""

    def profile_report(self) -> list[tuple[str, float, int]]:
        """(label, seconds, calls), operations of the same label together."""

# Doors to packing and single kernels, for `build` and tests; outputs are written in place.
def packed_bytes(format: str, layout: int, rows: int, cols: int) -> int: ...
def source_row_bytes(format: str, cols: int) -> int: ...
def pack(format: str, layout: int, rows: int, cols: int, source: _U8, packed: _U8) -> None: ...
def unpack(format: str, layout: int, rows: int, cols: int, packed: _U8, source: _U8) -> None: ...
def unpack_row(format: str, layout: int, rows: int, cols: int, packed: _U8, row: int, out: _F32) -> None: ...
def quantize(
    isa: str, x: _F32, codes: npt.NDArray[np.int8], scales: _F32, sums: npt.NDArray[np.int16]
) -> None: ...
def linear(
    isa: str, format: str, layout: int, rows: int, cols: int, packed: _U8, x: _F32, y: _F32
) -> None: ...
def norm(isa: str, kind: str, x: _F32, weight: _F32, bias: _F32 | None, eps: float, y: _F32) -> None: ...
def activation(isa: str, kind: str, x: _F32, y: _F32) -> None: ...
def gated_activation(isa: str, kind: str, gate: _F32, up: _F32, y: _F32) -> None: ...
def add(isa: str, x: _F32, scale: float, y: _F32) -> None: ...
def soft_cap(isa: str, x: _F32, cap: float, y: _F32) -> None: ...
def rope(isa: str, x: _F32, position: float, inv_freq: _F64, scale: float, pairing: str) -> None: ...
def kv_write(isa: str, keys: _U16, values: _U16, block_table: _I32, index: int, k: _F32, v: _F32) -> None: ...
def attention(
    isa: str,
    q: _F32,
    keys: _U16,
    values: _U16,
    block_table: _I32,
    first_index: int,
    scale: float,
    soft_cap: float,
    window: int,
    chunk: int,
    sinks: _F32 | None,
    out: _F32,
) -> None: ...

class Sampler:
    """Draws tokens from rows of logits; keeps scratch memory, so one thread at a time. See `kernels.sampling`."""

    def __init__(self, isa: str = "auto") -> None: ...
    def sample(
        self,
        logits: _F32,
        rows: _U8,
        prompt: _Ragged | None,
        output: _Ragged | None,
        banned: _Ragged | None,
        bias: _Ragged | None,
        bias_values: _F32 | None,
        allowed: npt.NDArray[np.uint32] | None,
        choices: _U8,
        top_starts: _I64,
        top_ids: _I32,
        top_logprobs: _F32,
    ) -> None: ...

def sample_count(num_logprobs: int, vocab: int) -> int: ...
def sample_uniform(seed: int, counter: int) -> float: ...
