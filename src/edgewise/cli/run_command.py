"""`edgewise run`: one completion of one prompt, with the flags of vllm-cli."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from edgewise.cli.common import ModelArgument, ModelOption, one_model, progress_bar, setup_logging
from edgewise.cli.serve_command import refuse_missing_capabilities, template_text


def command(
    model: ModelArgument = None,
    model_option: ModelOption = None,
    prompt: Annotated[str, typer.Option(help="the text to continue; - reads standard input")] = ...,  # type: ignore[assignment]
    chat: Annotated[bool, typer.Option(help="send the prompt as a user's turn through the chat template")] = False,
    tokenizer_config: Annotated[Path | None, typer.Option(help="tokenizer_config.json whose chat_template replaces the model's")] = None,
    max_tokens: Annotated[int, typer.Option(min=1, help="most tokens to generate")] = 16,
    temperature: Annotated[float, typer.Option(min=0.0, help="0: greedy")] = 0.0,
    top_p: Annotated[float, typer.Option(help="nucleus cutoff")] = 1.0,
    top_k: Annotated[int, typer.Option(help="0: all")] = 0,
    seed: Annotated[int | None, typer.Option(help="makes sampling repeatable", show_default=False)] = None,
    stream: Annotated[bool, typer.Option(help="print text as it is generated")] = False,
    speculative_config: Annotated[str | None, typer.Option(hidden=True)] = None,
    threads: Annotated[int | None, typer.Option(min=1, show_default="auto")] = None,
    isa: Annotated[str, typer.Option(help="kernels to use: auto, avx2, generic")] = "auto",
) -> None:  # fmt: skip
    import sys

    from edgewise import LLM, SamplingParams

    refuse_missing_capabilities({"speculative_config": speculative_config})
    setup_logging("warning")
    sampling = SamplingParams(
        temperature=temperature, top_p=top_p, top_k=top_k, seed=seed, max_tokens=max_tokens
    )
    text = sys.stdin.read() if prompt == "-" else prompt
    with progress_bar() as report:
        llm = LLM(
            one_model(model, model_option),
            threads=threads,
            isa=isa,
            chat_template=template_text(None, tokenizer_config),
            progress=report,
        )
    with llm:
        request = [{"role": "user", "content": text}] if chat else text
        if stream:
            for delta in llm.generate_stream(request, sampling):
                print(delta.text, end="", flush=True)
            print()
            return
        output = llm.generate([request], sampling)[0]
        if output.error is not None:
            raise output.error
        print(output.text)
