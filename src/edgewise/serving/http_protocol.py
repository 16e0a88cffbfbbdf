"""uvicorn's HTTP protocol with a bound on a request's head: httptools itself keeps headers for as long as they come."""

from __future__ import annotations

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MAX_HEAD_BYTES = 64 << 10  # several times what proxies let through
_TOO_LARGE = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-type: application/json\r\nconnection: close\r\n"
)
_BODY = (
    b'{"error":{"message":"The request\'s headers are larger than this server\'s limit.",'
    b'"type":"invalid_request_error","param":null,"code":"headers_too_large"}}'
)


class BoundedHeadProtocol(HttpToolsProtocol):
    """One connection. A head that does not end within `MAX_HEAD_BYTES` is answered 431, and the connection closed."""

    _in_head = True
    _head_bytes = 0

    def data_received(self, data: bytes) -> None:
        head_goes_on = (
            self._in_head
        )  # a piece with the end of one request and the beginning of the next is not counted
        super().data_received(data)
        if not head_goes_on or not self._in_head or self.transport.is_closing():
            return
        self._head_bytes += len(data)
        if self._head_bytes > MAX_HEAD_BYTES:
            self.transport.write(
                _TOO_LARGE + b"content-length: " + str(len(_BODY)).encode() + b"\r\n\r\n" + _BODY
            )
            self.transport.close()

    def on_message_begin(self) -> None:
        self._in_head = True
        self._head_bytes = 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._in_head = False
        super().on_headers_complete()
