"""Answers that come compressed although `accept-encoding: identity` was asked: proxies before an upstream do that."""

from __future__ import annotations

import zlib
from collections.abc import Iterator

from edgewise.gateway.parts import BrokenReplyError

_PIECE_BYTES = 256 << 10  # of what comes out at a time: a small piece may hold a thousand times its size
_EITHER = zlib.MAX_WBITS | 32  # gzip and zlib tell themselves apart

CODINGS = ("gzip", "x-gzip", "deflate")


class Decoder:
    """One body. Event loop only."""

    def __init__(self) -> None:
        self._stream = zlib.decompressobj(_EITHER)

    def feed(self, piece: bytes) -> Iterator[bytes]:
        """What a piece holds. Raises BrokenReplyError."""
        try:
            while piece:
                yield self._stream.decompress(piece, _PIECE_BYTES)
                piece = self._stream.unconsumed_tail
        except zlib.error as error:
            raise BrokenReplyError(f"its compressed answer cannot be read: {error}") from None

    def close(self) -> None:
        """Raises BrokenReplyError where the body ended early."""
        if not self._stream.eof:
            raise BrokenReplyError("its compressed answer ends early")
