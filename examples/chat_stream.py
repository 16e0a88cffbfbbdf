"""A conversation of two turns, printed as it is generated. The second turn finds the first in the prefix cache."""

import sys

from edgewise import LLM, SamplingParams


def main(model: str = "smollm2-135m-instruct") -> None:
    messages = [{"role": "system", "content": "You answer in one sentence."}]
    with LLM(model) as llm:
        for question in ("What is a prime number?", "Name three of them."):
            messages.append({"role": "user", "content": question})
            print(f"> {question}")
            answer = ""
            for delta in llm.generate_stream(messages, SamplingParams(temperature=0, max_tokens=64)):
                answer += delta.text
                print(delta.text, end="", flush=True)
                if delta.finished:
                    print(
                        f"\n  ({delta.usage.prompt_tokens} prompt tokens, {delta.usage.cached_tokens} of them cached)"
                    )
            messages.append({"role": "assistant", "content": answer})


if __name__ == "__main__":
    main(*sys.argv[1:])
