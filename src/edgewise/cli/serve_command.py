"""`edgewise serve MODEL`: the HTTP server. Flags keep the names that users of vLLM, vllm.cpp and TensorRT Edge-LLM type."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from edgewise.cli.common import (
    ModelArgument,
    ModelOption,
    checked_search_url,
    environment_path,
    one_model,
    progress_bar,
    setup_logging,
)
from edgewise.core.errors import ConfigError

logger = logging.getLogger("edgewise.cli")

NOT_YET = {
    "speculative_config": "speculative decoding",
    "kv_transfer_config": "an external KV connector",
    "allowed_local_media_path": "media input",
    "multimodal_engine_dir": "media input",
    "spec_decode_engine_dir": "speculative decoding",
}
"""Flags of the systems Edgewise replaces whose capability has not landed: refused at start, never inert."""


def _positive_or_auto(value: str | None) -> int | None:
    """ "auto", "0" and absence mean that Edgewise decides; anything else is a number."""
    if value in (None, "auto", "0"):
        return None
    try:
        number = int(value or "")
    except ValueError:
        number = -1
    if number < 1:
        raise typer.BadParameter(f"{value!r} is neither a positive number nor auto")
    return number


Size = Annotated[str | None, typer.Option(metavar="N|auto", show_default="auto")]


def command(
    model: ModelArgument = None,
    model_option: ModelOption = None,
    host: Annotated[str, typer.Option(help="address to listen on")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="port; 0 picks a free one")] = 8000,
    served_model_name: Annotated[str | None, typer.Option(help="name in /v1/models and in replies")] = None,
    api_key: Annotated[list[str] | None, typer.Option(help="accept only this key (repeatable); also EDGEWISE_API_KEY")] = None,
    alias: Annotated[list[str] | None, typer.Option(help="a further name for the model (repeatable)")] = None,
    strict_model_names: Annotated[bool, typer.Option(help="answer unknown model names with 404")] = False,
    tokenizer_config: Annotated[Path | None, typer.Option(help="tokenizer_config.json whose chat_template replaces the model's")] = None,
    chat_template: Annotated[Path | None, typer.Option(help="file with a chat template that replaces the model's")] = None,
    generation_config: Annotated[str, typer.Option(help="auto: the model's own sampling defaults; none: ignore them")] = "auto",
    threads: Size = None,
    isa: Annotated[str, typer.Option(help="kernels to use: auto, avx2, generic")] = "auto",
    huge_pages: Annotated[bool | None, typer.Option("--huge-pages/--no-huge-pages", help="copy the weights into huge pages", show_default="auto")] = None,
    max_model_len: Size = None,
    max_input_len: Size = None,
    max_num_seqs: Size = None,
    max_batch_size: Annotated[str | None, typer.Option(metavar="N|auto", help="the same as --max-num-seqs", show_default="auto")] = None,
    max_num_batched_tokens: Size = None,
    num_blocks: Size = None,
    max_kv_cache_capacity: Annotated[str | None, typer.Option(metavar="N|auto", help="the same as --max-model-len", show_default="auto")] = None,
    block_size: Annotated[int, typer.Option(help="tokens of a KV block; only 32")] = 32,
    enable_prefix_caching: Annotated[bool, typer.Option("--enable-prefix-caching/--no-enable-prefix-caching", help="keep and reuse KV of prompts")] = True,
    enable_jump_forward: Annotated[bool, typer.Option("--enable-jump-forward/--no-enable-jump-forward", help="take what a grammar forces without a step for each token")] = True,
    radix_attention: Annotated[bool | None, typer.Option("--enable-radix-attention/--disable-radix-attention", help="SGLang's name of the prefix cache switch", show_default=False)] = None,
    scheduling_policy: Annotated[str, typer.Option("--scheduling-policy", "--schedule-policy", help="fcfs, priority or lpm")] = "fcfs",
    enable_force_include_usage: Annotated[bool, typer.Option(help="put usage into every stream")] = False,
    request_queue_size: Annotated[int, typer.Option(min=1, help="requests admitted at once; more are answered 503")] = 32,
    enable_batching: Annotated[bool, typer.Option(help="accepted: batching is continuous and always on")] = False,
    max_queue_batch_size: Annotated[int | None, typer.Option(help="accepted: see --enable-batching", show_default=False)] = None,
    batch_timeout_ms: Annotated[int | None, typer.Option(help="accepted: see --enable-batching", show_default=False)] = None,
    enable_in_flight_batching: Annotated[bool, typer.Option(help="accepted: see --enable-batching")] = False,
    enable_context_reuse: Annotated[bool, typer.Option(help="accepted: the prefix cache is on by default")] = False,
    cors_origin: Annotated[list[str] | None, typer.Option(help="allow this origin (repeatable); none by default")] = None,
    allowed_host: Annotated[list[str] | None, typer.Option(help="answer only this Host (repeatable); any by default, to browsers without a key only local ones")] = None,
    max_body_mb: Annotated[int, typer.Option(min=1, help="largest request body, MiB")] = 32,
    page: Annotated[bool, typer.Option("--page/--no-page", help="browsers get the chat page at /")] = True,
    search_url: Annotated[str | None, typer.Option(help="a SearXNG whose JSON is switched on: the page can search the web", show_default=False)] = None,
    keep_alive_s: Annotated[float, typer.Option(min=0.1, help="a stream shows a sign of life this often")] = 10.0,
    drain_timeout_s: Annotated[float, typer.Option(min=0.0, help="how long running answers may take after a signal to stop")] = 30.0,
    root_path: Annotated[str, typer.Option(help="path below which a proxy has put the server")] = "",
    cache_dir: Annotated[Path | None, typer.Option(help="where built engines are kept; also EDGEWISE_CACHE_DIR")] = None,
    engine_cache_max_size_gb: Annotated[float | None, typer.Option(min=0.001, help="size limit of that folder", show_default="auto")] = None,
    clear_engine_cache: Annotated[bool, typer.Option(help="empty that folder first")] = False,
    log_level: Annotated[str, typer.Option(help="debug, info, warning or error")] = "info",
    tool_call_parser: Annotated[str, typer.Option(help="tool dialect; auto: as the chat template writes calls; none: calls stay text")] = "auto",
    reasoning_parser: Annotated[str, typer.Option(help="reasoning dialect; auto: as the chat template thinks; none: thinking stays text")] = "auto",
    enable_auto_tool_choice: Annotated[bool, typer.Option(help="accepted: tools are always the model's choice unless a request says otherwise")] = False,
    bare_calls: Annotated[bool, typer.Option("--bare-calls/--no-bare-calls", help="take an answer that opens as a JSON call without its markers for a call")] = True,
    reasoning_budget: Annotated[int | None, typer.Option(min=0, help="tokens of thinking where a request names no budget", show_default="no limit")] = None,
    pooling: Annotated[Literal["last", "mean"], typer.Option(help="of embeddings where a request does not say: last or mean")] = "last",
    max_stored_responses: Annotated[int, typer.Option(min=0, help="answers of /v1/responses kept for requests that ask for it")] = 1000,
    trust_request_chat_template: Annotated[bool, typer.Option(help="let a request bring its own chat template")] = False,
    speculative_config: Annotated[str | None, typer.Option(hidden=True)] = None,
    kv_transfer_config: Annotated[str | None, typer.Option(hidden=True)] = None,
    allowed_local_media_path: Annotated[str | None, typer.Option(hidden=True)] = None,
    multimodal_engine_dir: Annotated[str | None, typer.Option("--multimodal-engine-dir", "--visual-engine-dir", hidden=True)] = None,
    spec_decode_engine_dir: Annotated[str | None, typer.Option(hidden=True)] = None,
) -> None:  # fmt: skip
    given: dict[str, Any] = dict(locals())
    from edgewise.config import CacheOptions, ChatOptions, Config, EngineOptions, ModelOptions
    from edgewise.server import ServerOptions

    refuse_missing_capabilities(given)
    setup_logging(log_level)
    note_pointless_flags(given)
    if radix_attention is not None:
        enable_prefix_caching = radix_attention
    config = Config(
        model=ModelOptions(
            model=one_model(model, model_option),
            served_model_name=served_model_name,
            generation_config=generation_config,  # type: ignore[arg-type]
            chat_template=template_text(chat_template, tokenizer_config),
        ),
        engine=EngineOptions(
            threads=_positive_or_auto(threads),
            isa=isa,
            max_model_len=same_option("--max-model-len", max_model_len, "--max-kv-cache-capacity", max_kv_cache_capacity),
            max_input_len=_positive_or_auto(max_input_len),
            max_num_seqs=same_option("--max-num-seqs", max_num_seqs, "--max-batch-size", max_batch_size),
            max_num_batched_tokens=_positive_or_auto(max_num_batched_tokens),
            num_blocks=_positive_or_auto(num_blocks),
            block_size=block_size,
            scheduling_policy=scheduling_policy,  # type: ignore[arg-type]
            enable_prefix_caching=enable_prefix_caching,
            enable_jump_forward=enable_jump_forward,
            huge_pages=huge_pages,
        ),
        chat=ChatOptions(
            tool_call_parser=tool_call_parser,
            reasoning_parser=reasoning_parser,
            bare_calls=bare_calls,
            reasoning_budget=reasoning_budget,
        ),
        cache=CacheOptions(
            cache_dir=cache_dir or environment_path("EDGEWISE_CACHE_DIR"),
            engine_cache_max_size_gb=engine_cache_max_size_gb,
            clear_engine_cache=clear_engine_cache,
        ),
    )  # fmt: skip
    options = ServerOptions(
        host=host,
        port=port,
        api_keys=tuple(api_key or ()) or environment_keys(),
        allowed_origins=tuple(cors_origin or ()),
        allowed_hosts=tuple(allowed_host or ()),
        max_body_bytes=max_body_mb << 20,
        request_queue_size=request_queue_size,
        keep_alive_s=keep_alive_s,
        drain_timeout_s=drain_timeout_s,
        root_path=root_path,
        page=page,
        search_url=checked_search_url(search_url),
        force_include_usage=enable_force_include_usage,
        strict_model_names=strict_model_names,
        trust_request_chat_template=trust_request_chat_template,
        pooling=pooling,
        max_stored_responses=max_stored_responses,
        log_level=log_level,  # type: ignore[arg-type]
        model_aliases=tuple(alias or ()),
        environment={k: v for k, v in os.environ.items() if k.startswith(("EDGEWISE_", "VLLM_"))},
    )
    from edgewise.server import serve

    serve(config, options, loading=progress_bar)


def refuse_missing_capabilities(given: dict[str, Any]) -> None:
    """Raises ConfigError for the first flag that asks for what this version cannot do."""
    for name, capability in NOT_YET.items():
        if given.get(name) not in (None, False, "none"):
            flag = "--" + name.replace("_", "-")
            raise ConfigError(
                f"{flag}: {capability} is not available in this version", hint="leave the flag out"
            )


def note_pointless_flags(given: dict[str, Any]) -> None:
    """Says once for each accepted flag that continuous batching or the prefix cache makes pointless."""
    for name in ("enable_batching", "max_queue_batch_size", "batch_timeout_ms", "enable_in_flight_batching"):
        if given.get(name):
            logger.info("--%s has no effect: batching is continuous and always on", name.replace("_", "-"))
    if given.get("enable_auto_tool_choice"):
        logger.info("--enable-auto-tool-choice has no effect: tools are always the model's choice")
    if given.get("enable_context_reuse"):
        logger.info("--enable-context-reuse has no effect: the prefix cache is on by default")


def same_option(first: str, value: str | None, second: str, other: str | None) -> int | None:
    """One size under two names. Raises ConfigError when they disagree."""
    a, b = _positive_or_auto(value), _positive_or_auto(other)
    if a is not None and b is not None and a != b:
        raise ConfigError(f"{first} ({a}) and {second} ({b}) mean the same and disagree")
    return a if a is not None else b


def template_text(template: Path | None, tokenizer_config: Path | None) -> str | None:
    """The chat template given as a file or inside a tokenizer_config.json; None: the model's own."""
    if template and tokenizer_config:
        raise ConfigError("--chat-template and --tokenizer-config both replace the template; give one")
    path = template or tokenizer_config
    if path is None:
        return None
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8 text: {error.reason} at byte {error.start}") from error
    if template:
        return text
    try:
        found = json.loads(text).get("chat_template")
    except (ValueError, AttributeError):
        raise ConfigError(f"{path} is not a JSON object") from None
    if not isinstance(found, str):
        raise ConfigError(f"{path} has no chat_template text")
    return found


def environment_keys() -> tuple[str, ...]:
    """API keys of EDGEWISE_API_KEY, separated by commas."""
    return tuple(key.strip() for key in os.environ.get("EDGEWISE_API_KEY", "").split(",") if key.strip())
