"""Every knob of the HTTP server: those of `config.ServerOptions`, and those only this room reads."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from edgewise import config
from edgewise.core.requests import Pooling


@dataclass(frozen=True, slots=True)
class ServerOptions(config.ServerOptions):
    """What `create_app` and `serve` need beside a pipeline. Immutable.

    `environment` is shown, with secrets blanked, by /server_info; the caller passes what it wants seen.
    """

    served_model_name: str | None = None  # None: the pipeline's own
    model_path: str = ""  # shown to clients that ask where the model came from
    model_aliases: tuple[
        str, ...
    ] = ()  # further names, listed by /v1/models and right under strict_model_names
    allowed_hosts: tuple[str, ...] = ()  # Host headers answered; empty: any
    body_timeout_s: float = 60.0  # longest silence while a body is being sent
    parse_threads: int = 2  # templates, tokenising and large bodies
    max_choices: int = 512  # choices of one completions request, all its prompts together
    max_stored_responses: int = 1000  # of /v1/responses with `store`
    max_stored_response_bytes: int = 64 << 20
    pooling: Pooling = "last"  # of embeddings, where a request does not say
    enable_metrics: bool = True
    access_log: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, base: config.ServerOptions, **more: Any) -> ServerOptions:
        """The general options of a Config with this room's own beside them."""
        if isinstance(base, cls):
            return dataclasses.replace(base, **more)
        general = {f.name: getattr(base, f.name) for f in dataclasses.fields(config.ServerOptions)}
        return cls(**general, **more)
