"""The commands' end of the control socket. Blocking."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from edgewise.core.errors import EdgewiseError
from edgewise.gateway.supervision.control import SOCKET, socket_address
from edgewise.gateway.supervision.errors import EngineStartError


class NoGatewayError(EdgewiseError):
    """Nobody listens on the control socket."""


class ControlClient:
    """The gateway of a data folder."""

    def __init__(self, data_dir: Path) -> None:
        self._path = data_dir / SOCKET

    def do(self, what: str, **values: Any) -> Iterator[dict[str, Any]]:
        """What the gateway says, the last one with `done`. Raises NoGatewayError where none runs, EdgewiseError for what it refuses."""
        with self._connected() as connection, connection.makefile("rwb") as lines:
            lines.write(json.dumps({"do": what, **values}).encode() + b"\n")
            lines.flush()
            for line in lines:
                said = json.loads(line)
                if "error" in said:
                    raise EngineStartError(said["error"], hint=said.get("hint"), lines=said.get("log", ()))
                yield said
                if "done" in said:
                    return
        raise EdgewiseError("the gateway ended before it was done")

    def ask(self, what: str, **values: Any) -> dict[str, Any]:
        """Only the last thing it says."""
        *_, last = self.do(what, **values)
        return last

    def _connected(self) -> socket.socket:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            with socket_address(self._path) as address:
                connection.connect(address)
        except OSError as error:
            connection.close()
            raise NoGatewayError(
                f"no gateway runs here (nobody listens on {self._path}: {error.strerror})",
                hint="`edgewise gateway` starts one",
            ) from error
        return connection
