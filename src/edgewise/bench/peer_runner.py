"""Runs llama.cpp (or ik_llama.cpp) for `edgewise bench`, in a process of its own and under the interpreter that has it.

Started as a plain script; imports nothing of Edgewise. Reads one JSON command a line on stdin and answers one JSON object a line on
stdout: {"op": "open" | "prefill" | "decode" | "rss" | "evaluate", ...}. Everything goes through llama_decode, as the peer's own benchmark does.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import sys
import time


class Peer:
    """One loaded model and one context; the context is remade when its sizes change."""

    def __init__(self, module: str) -> None:
        self.lib = importlib.import_module(module)
        self.model = None
        self.context = None
        self.sizes: tuple[int, int, bool, bool] | None = None
        self.filled: tuple[int, int] | None = None
        self.threads = 1
        self.vocab_size: int = 0

    def open(self, path: str, threads: int) -> dict[str, object]:
        lib = self.lib
        self.threads = threads
        lib.llama_backend_init()
        params = lib.llama_model_default_params()
        if hasattr(params, "repack_tensors"):  # ik_llama.cpp's fastest form: rows interleaved at load
            params.repack_tensors, params.use_mmap = True, False
        start = time.perf_counter()
        load = getattr(lib, "llama_model_load_from_file", None) or lib.llama_load_model_from_file
        self.model = load(path.encode(), params)
        if not self.model:
            raise RuntimeError(f"the peer cannot load {path}")
        self.make_context(512, 1, flash=False)
        vocab = lib.llama_model_get_vocab(self.model) if hasattr(lib, "llama_model_get_vocab") else self.model
        count = getattr(lib, "llama_vocab_n_tokens", None) or lib.llama_n_vocab
        self.vocab_size = int(count(vocab))
        return {"seconds": time.perf_counter() - start, "vocab_size": self.vocab_size}

    def make_context(self, length: int, sequences: int, *, flash: bool, all_logits: bool = False) -> None:
        """A context of `sequences` with `length` tokens each; kept when it already has these sizes."""
        sizes = (length, sequences, flash, all_logits)
        if self.sizes == sizes:
            return
        lib = self.lib
        if self.context:
            lib.llama_free(self.context)
        params = lib.llama_context_default_params()
        params.n_ctx = -(-length * sequences // 256) * 256
        params.n_batch = 2048
        params.n_ubatch = 512
        params.n_seq_max = sequences
        params.n_threads = params.n_threads_batch = self.threads
        if hasattr(params, "flash_attn_type"):
            params.flash_attn_type = 1 if flash else 0
        else:
            params.flash_attn = flash
        if all_logits and hasattr(params, "logits_all"):
            params.logits_all = True
        make = getattr(lib, "llama_init_from_model", None) or lib.llama_new_context_with_model
        self.context = make(self.model, params)
        if not self.context:
            raise RuntimeError(f"the peer cannot make a context of {length} x {sequences} tokens")
        self.sizes, self.filled = sizes, None

    def clear(self) -> None:
        lib = self.lib
        if hasattr(lib, "llama_get_memory"):
            lib.llama_memory_clear(lib.llama_get_memory(self.context), False)
        else:
            clear = getattr(lib, "llama_kv_self_clear", None) or lib.llama_kv_cache_clear
            clear(self.context)
        self.filled = None

    def forget_after(self, position: int) -> None:
        lib = self.lib
        if hasattr(lib, "llama_get_memory"):
            lib.llama_memory_seq_rm(lib.llama_get_memory(self.context), -1, position, -1)
            return
        remove = lib._lib.llama_kv_cache_seq_rm  # exported by ik_llama.cpp's library, but not by its binding
        remove.argtypes = [ctypes.c_void_p, ctypes.c_int32, ctypes.c_int32, ctypes.c_int32]
        for sequence in range(self.sizes[1] if self.sizes else 1):
            remove(self.context, sequence, position, -1)

    def feed(self, rows: list[tuple[int, int, int, bool]]) -> None:
        """One llama_decode of (token, position, sequence, wants logits) rows."""
        lib = self.lib
        batch = lib.llama_batch_init(len(rows), 0, 1)
        batch.n_tokens = len(rows)
        for i, (token, position, sequence, wants) in enumerate(rows):
            batch.token[i] = token
            batch.pos[i] = position
            batch.n_seq_id[i] = 1
            batch.seq_id[i][0] = sequence
            batch.logits[i] = wants
        code = lib.llama_decode(self.context, batch)
        lib.llama_batch_free(batch)
        if code != 0:
            raise RuntimeError(f"llama_decode returned {code}")

    def token(self, position: int, sequence: int) -> int:
        return 100 + (position * 7919 + sequence * 104729) % (self.vocab_size - 200)

    def fill(self, start: int, count: int, sequence: int) -> None:
        for begin in range(start, start + count, 2048):
            end = min(begin + 2048, start + count)
            last = start + count - 1
            self.feed([(self.token(p, sequence), p, sequence, p == last) for p in range(begin, end)])

    def prefill(self, tokens: int, flash: bool) -> dict[str, object]:
        self.make_context(tokens + 64, 1, flash=flash)
        self.clear()
        start = time.perf_counter()
        self.fill(0, tokens, 0)
        self.synchronize()
        return {"seconds": time.perf_counter() - start}

    def decode(self, batch: int, steps: int, context: int, flash: bool) -> dict[str, object]:
        """Seconds of `steps` decodes of `batch` sequences that already hold `context` tokens each."""
        self.make_context(context + steps + 64, batch, flash=flash)
        if self.filled != (batch, context):
            self.clear()
            for sequence in range(batch):
                self.fill(0, context, sequence)
            self.filled = (batch, context)
        self.forget_after(context)
        start = time.perf_counter()
        for step in range(steps):
            position = context + step
            self.feed([(self.token(position, s), position, s, True) for s in range(batch)])
        self.synchronize()
        return {"seconds": time.perf_counter() - start}

    def evaluate(self, tokens: list[int], flash: bool, out: str) -> dict[str, object]:
        """Write the f32 logits [len(tokens), V] of one text to the file `out`."""
        self.make_context(len(tokens) + 64, 1, flash=flash, all_logits=True)
        self.clear()
        with open(out, "wb") as file:  # noqa: PTH123
            for begin in range(0, len(tokens), 256):
                chunk = tokens[begin : begin + 256]
                self.feed([(t, begin + i, 0, True) for i, t in enumerate(chunk)])
                for i in range(len(chunk)):
                    row = self.lib.llama_get_logits_ith(self.context, i)
                    file.write(ctypes.string_at(row, self.vocab_size * 4))
        return {"rows": len(tokens)}

    def synchronize(self) -> None:
        if hasattr(self.lib, "llama_synchronize"):
            self.lib.llama_synchronize(self.context)
        else:
            self.lib.llama_get_logits_ith(self.context, -1)

    def rss(self) -> dict[str, object]:
        with open("/proc/self/status") as file:  # noqa: PTH123
            fields = dict(line.split(":", 1) for line in file if ":" in line)
        return {"bytes": int(fields["VmHWM"].split()[0]) * 1024}


def main() -> None:
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # whatever the library prints goes to stderr
    peer = Peer(sys.argv[1])
    for line in sys.stdin:
        command = json.loads(line)
        op = command.pop("op")
        try:
            answer = getattr(peer, op)(**command)
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    main()
