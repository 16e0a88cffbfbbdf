"""From a Config to a Pipeline: engine directory, sizes, decoder, engine, tokenizer, template.

The rooms that need the native module are imported when a model is loaded, so that a pipeline over another decoder works
without it. With `settings` left out this is an entry point of the Python API and reads the environment, as the command line does.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgewise.chat import ChatTemplate
from edgewise.checkpoints.progress import ProgressCallback, silent
from edgewise.checkpoints.settings import StoreSettings, settings_from_environment
from edgewise.config import (
    CacheOptions,
    Config,
    ModelFacts,
    ModelOptions,
    ResolvedConfig,
    kv_bytes_per_block,
    resolve,
)
from edgewise.core.errors import ModelError
from edgewise.hardware import read_hardware
from edgewise.pipeline.pipeline import Pipeline
from edgewise.text import Tokenizer

if TYPE_CHECKING:
    from edgewise.build import EngineDir
    from edgewise.decoder.decoder import Decoder
    from edgewise.engine import Engine

logger = logging.getLogger("edgewise.pipeline")


def load_pipeline(
    config: Config, *, progress: ProgressCallback | None = None, settings: StoreSettings | None = None
) -> Pipeline:
    """Load the model a Config names, fetching it and building its engine directory if this is its first use.

    `settings` say where models are kept and fetched from; None: as the environment says. The Config's cache options win.
    Raises ConfigError, ModelError, DownloadError.
    """
    settings = _with_cache(settings or settings_from_environment(os.environ), config.cache)
    engine_dir = _open(config.model, config.engine.isa, settings, progress or silent)
    spec = engine_dir.spec
    facts = ModelFacts(spec, engine_dir.weights.nbytes, kv_bytes_per_block(spec))
    resolved = resolve(config.engine, facts, read_hardware())
    with ThreadPoolExecutor(1) as helper:  # the decoder copies weights meanwhile
        loading = helper.submit(Tokenizer.load, engine_dir.path)
        decoder = _decoder(engine_dir, resolved)
        try:
            tokenizer = loading.result()
            template, fault = _template(config.model.chat_template, engine_dir.chat_template, tokenizer)
        except BaseException:
            decoder.close()
            raise
    generation_config = engine_dir.generation_config
    return Pipeline(
        _start_engine(decoder, engine_dir, resolved),
        tokenizer,
        template=template,
        template_fault=fault,
        max_model_len=resolved.max_model_len,
        max_input_len=resolved.max_input_len,
        generation_config=generation_config if config.model.generation_config == "auto" else {},
        eos_token_ids=eos_ids(generation_config, tokenizer.vocab_size),
        vocab_size=min(tokenizer.vocab_size, spec.vocab_size),
        model_name=config.model.served_model_name or source_name(config.model),
        chat=config.chat,
        resolved=resolved,
    )


def source_name(options: ModelOptions) -> str:
    """What a model is called when nobody names it: the catalog or hub id, or a path's last part; without .gguf."""
    source = str(options.engine_dir or options.model or "")
    if Path(source).exists():
        return Path(source).resolve().name.removesuffix(".gguf")
    return source.removeprefix("hf:").removeprefix("wheel:").removesuffix(".gguf")


def eos_ids(generation_config: Mapping[str, Any], vocab_size: int) -> frozenset[int]:
    """The stop tokens a generation_config.json names: an id or a list of them."""
    found = generation_config.get("eos_token_id")
    ids = found if isinstance(found, list) else [found]
    return frozenset(i for i in ids if isinstance(i, int) and not isinstance(i, bool) and 0 <= i < vocab_size)


def _with_cache(settings: StoreSettings, cache: CacheOptions) -> StoreSettings:
    if cache.cache_dir is not None:
        settings = replace(settings, engine_cache_dir=cache.cache_dir)
    if cache.engine_cache_max_size_gb is not None:
        settings = replace(settings, engine_cache_bytes=int(cache.engine_cache_max_size_gb * 1e9))
    if cache.clear_engine_cache:
        from edgewise.build.cache import cache_entries, remove_entry

        for entry in cache_entries(settings):
            remove_entry(entry)
    return settings


def _open(options: ModelOptions, isa: str, settings: StoreSettings, progress: ProgressCallback) -> EngineDir:
    from edgewise.build import engine_dir_for, open_engine_dir
    from edgewise.kernels.native import layout_of

    layout = layout_of(isa)
    if options.engine_dir is not None:
        return open_engine_dir(options.engine_dir, layout=layout, progress=progress, settings=settings)
    assert options.model is not None, "arguments name exactly one source"
    return engine_dir_for(options.model, layout=layout, progress=progress, settings=settings)


def _template(given: str | None, own: str | None, tokenizer: Tokenizer) -> tuple[ChatTemplate | None, str]:
    """The template that was asked for, else the model's own; and what is wrong with the latter, where it cannot be used.

    Raises ModelError for a given one that cannot be used. A model's own takes its chats with it, not its completions.
    """
    source = given or own
    if not source:
        return None, ""
    try:
        return _compiled(source, tokenizer), ""
    except ModelError as error:
        if given:
            raise
        logger.warning("The model cannot chat, only continue texts: %s", error.message)
        return None, error.message


def _compiled(source: str, tokenizer: Tokenizer) -> ChatTemplate:
    return ChatTemplate(
        source,
        bos_token=tokenizer.bos_token,
        eos_token=tokenizer.eos_token,
        control_tokens=tokenizer.control_tokens,
    )


def _decoder(engine_dir: EngineDir, resolved: ResolvedConfig) -> Decoder:
    """The native decoder, sized."""
    from edgewise.decoder.decoder import Decoder, DecoderConfig

    return Decoder(
        engine_dir,
        DecoderConfig(
            num_blocks=resolved.num_blocks,
            max_rows=resolved.max_num_batched_tokens,
            max_outputs=resolved.max_output_rows,
            threads=resolved.threads,
            isa=resolved.isa,
            max_model_len=resolved.max_model_len,
            huge_pages=resolved.huge_pages,
        ),
    )


def _start_engine(decoder: Decoder, engine_dir: EngineDir, resolved: ResolvedConfig) -> Engine:
    """An engine over the decoder, which it owns."""
    from edgewise.engine import Engine, EngineConfig

    engine_config = EngineConfig(
        max_model_len=resolved.max_model_len,
        max_num_seqs=resolved.max_num_seqs,
        max_num_batched_tokens=resolved.max_num_batched_tokens,
        scheduling_policy=resolved.scheduling_policy,
        enable_prefix_caching=resolved.enable_prefix_caching,
        enable_jump_forward=resolved.enable_jump_forward,
        cache_fingerprint=engine_dir.fingerprint,
    )
    try:
        return Engine(decoder, engine_config)
    except BaseException:
        decoder.close()
        raise
