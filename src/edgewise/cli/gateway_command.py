"""`edgewise gateway`: one address in front of several engines."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edgewise.cli.common import checked_search_url, profiles_folder, setup_logging, store_settings
from edgewise.cli.engine_parts import engine_names, gateway_desk
from edgewise.cli.local_engine import local_engine
from edgewise.cli.serve_command import environment_keys
from edgewise.core.errors import ConfigError

if TYPE_CHECKING:
    from edgewise.gateway.config import GatewayConfig, UpstreamConfig


def command(
    engine: Annotated[list[str] | None, typer.Option(metavar="NAME[:KIND]=URL", help="an upstream (repeatable, the first is preferred); KIND: edgewise, llama, edge-llm, vllm, openai", show_default=False)] = None,
    serve_model: Annotated[str | None, typer.Option("--serve", metavar="MODEL", help="serve this model in the gateway's own process, as its first upstream", show_default=False)] = None,
    config: Annotated[Path | None, typer.Option(help="TOML file with upstreams and settings; read again on SIGHUP", show_default=False)] = None,
    host: Annotated[str, typer.Option(help="address to listen on")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="port; 0 picks a free one")] = 8080,
    api_key: Annotated[list[str] | None, typer.Option(help="accept only this key (repeatable; also EDGEWISE_API_KEY), instead of those of `edgewise key`")] = None,
    default: Annotated[str | None, typer.Option(metavar="NAME", help="the upstream that answers unknown model names", show_default="the first")] = None,
    alias: Annotated[list[str] | None, typer.Option(metavar="NAME=MODEL", help="a further name for a model or an upstream (repeatable)", show_default=False)] = None,
    strict_model_names: Annotated[bool | None, typer.Option("--strict-model-names/--no-strict-model-names", help="answer unknown model names with 404", show_default="no")] = None,
    refresh_s: Annotated[float | None, typer.Option(min=0.05, help="upstreams list their models again this often", show_default="10")] = None,
    health_s: Annotated[float | None, typer.Option(min=0.05, help="upstreams are asked this often whether they answer", show_default="3")] = None,
    keep_alive_s: Annotated[float, typer.Option(min=0.1, help="a stream shows a sign of life this often")] = 10.0,
    commit_after_s: Annotated[float, typer.Option(min=0.1, help="a streamed request waits this long for its upstream's status")] = 10.0,
    upstream_timeout_s: Annotated[float, typer.Option(min=1.0, help="an upstream may be silent this long")] = 3600.0,
    max_body_mb: Annotated[int, typer.Option(min=1, help="largest request body, MiB")] = 32,
    max_stored_responses: Annotated[int, typer.Option(min=0, help="answers of /v1/responses kept for requests that ask for it")] = 1000,
    cors_origin: Annotated[list[str] | None, typer.Option(help="allow this origin (repeatable); none by default")] = None,
    allowed_host: Annotated[list[str] | None, typer.Option(help="answer only this Host (repeatable); any by default, to browsers without a key only local ones")] = None,
    root_path: Annotated[str, typer.Option(help="path below which a proxy has put the gateway")] = "",
    keep_free_gb: Annotated[float | None, typer.Option(min=0.0, help="memory that must stay free on the machine when an engine is loaded, GB", show_default="a sixteenth, at most 8.6")] = None,
    page: Annotated[bool, typer.Option("--page/--no-page", help="browsers get the chat page at /")] = True,
    search_url: Annotated[str | None, typer.Option(help="a SearXNG whose JSON is switched on: the page can search the web", show_default=False)] = None,
    drain_timeout_s: Annotated[float, typer.Option(min=0.0, help="running answers get this long when the gateway stops")] = 30.0,
    log_level: Annotated[str, typer.Option(help="debug, info, warning or error")] = "info",
) -> None:  # fmt: skip
    from edgewise.gateway.keys import StaticKeys
    from edgewise.gateway.parts import ForwardOptions
    from edgewise.gateway.profiles import FileProfiles
    from edgewise.gateway.run import Listening, serve
    from edgewise.manage.keys import KeyBook
    from edgewise.web import SearchSettings, web_routes

    setup_logging(log_level)
    aliases = dict(_alias_of(text) for text in alias or ())
    settings: dict[str, Any] = {
        "default": default,
        "strict_model_names": strict_model_names,
        "refresh_s": refresh_s,
        "health_s": health_s,
    }
    given = {name: value for name, value in settings.items() if value is not None}

    store = store_settings()
    data_dir = store.data_dir

    def load() -> GatewayConfig:
        first = () if local is None else (local[0],)
        return _configuration(first, engine or [], config, aliases, given, engine_names(store))

    keys = tuple(api_key or ()) or environment_keys()
    search = SearchSettings(
        checked_search_url(search_url), max_body_bytes=max_body_mb << 20, keep_alive_s=keep_alive_s
    )
    needed = not (engine or config or serve_model)
    with (
        local_engine(serve_model, max_body_mb << 20) as local,
        gateway_desk(store, keep_free_gb, needed=needed) as desk,
    ):
        serve(
            load,
            ForwardOptions(
                max_body_bytes=max_body_mb << 20,
                commit_after_s=commit_after_s,
                keep_alive_s=keep_alive_s,
                upstream_timeout_s=upstream_timeout_s,
                max_stored_responses=max_stored_responses,
                root_path=root_path,
                allowed_hosts=tuple(allowed_host or ()),
                allowed_origins=tuple(cors_origin or ()),
            ),
            listening=Listening(host, port, drain_timeout_s, log_level),
            keys=StaticKeys(keys) if keys else KeyBook(data_dir),
            profiles=FileProfiles(profiles_folder()),
            routes=web_routes(_greeting, search, page=page),
            desk=desk,
            local=None if local is None else local[1],
        )


def _greeting(request: object) -> str:
    from edgewise import __version__

    return f"Edgewise {__version__}: a gateway.\n"


def _configuration(
    first: tuple[UpstreamConfig, ...],
    engines: list[str],
    path: Path | None,
    aliases: dict[str, str],
    given: dict[str, Any],
    names: tuple[str, ...],
) -> GatewayConfig:
    """The file's configuration with the flags over it: their upstreams come before the file's. `names`: engines that may join them.

    Raises ConfigError.
    """
    from edgewise.gateway.config import GatewayConfig, engine_of, read_config

    base = GatewayConfig(engines=names) if path is None else read_config(path, names)
    upstreams = (*first, *(engine_of(text) for text in engines), *base.upstreams)
    return base.replace(upstreams=upstreams, aliases={**base.aliases, **aliases}, **given)


def _alias_of(text: str) -> tuple[str, str]:
    name, equals, model = text.partition("=")
    if not equals or not name or not model:
        raise ConfigError(f"--alias {text!r} is not NAME=MODEL")
    return name, model
