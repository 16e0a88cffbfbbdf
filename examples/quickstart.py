"""Complete a few prompts. `python examples/quickstart.py [MODEL]`; the first run fetches and builds the model."""

import sys

from edgewise import LLM, SamplingParams


def main(model: str = "smollm2-135m-instruct") -> None:
    prompts = ["The capital of France is", "def fibonacci(n):", "Once upon a time"]
    with LLM(model) as llm:
        for output in llm.generate(prompts, SamplingParams(temperature=0, max_tokens=32)):
            print(f"{output.prompt!r} -> {output.text!r} ({output.finish_reason})")
            print(f"  {output.usage.prompt_tokens} prompt tokens, {output.usage.completion_tokens} generated")


if __name__ == "__main__":
    main(*sys.argv[1:])
