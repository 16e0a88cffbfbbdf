"""Several choices of one prompt, repeatable by their seed, ranked by how likely the model finds them."""

import sys

from edgewise import LLM, SamplingParams


def main(model: str = "smollm2-135m-instruct") -> None:
    params = SamplingParams(n=4, temperature=0.9, seed=7, max_tokens=12, stop=["\n", "."], logprobs=3)
    with LLM(model) as llm:
        (output,) = llm.generate("My favourite animal is the", params)
        for choice in sorted(output.outputs, key=lambda c: c.cumulative_logprob, reverse=True):
            print(f"{choice.cumulative_logprob:8.2f}  {choice.text!r}")
        first = output.logprobs[0]
        print("the first token could have been:")
        for token_id, logprob in first.top:
            print(f"{logprob:8.2f}  {llm.tokenizer.token_text(token_id)!r}")


if __name__ == "__main__":
    main(*sys.argv[1:])
