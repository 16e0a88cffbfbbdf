"""A logits processor of one's own: each generated token makes itself less likely from then on."""

import sys
from collections.abc import Sequence

import numpy as np

from edgewise import LLM, SamplingParams


class Tiring:
    """Lowers the logit of every token by `amount` for each time it was generated."""

    def __init__(self, amount: float) -> None:
        self.amount = amount

    def __call__(self, ids: Sequence[int], logits: np.ndarray) -> None:
        np.subtract.at(logits, list(ids), self.amount)


def main(model: str = "smollm2-135m-instruct") -> None:
    plain = SamplingParams(temperature=0, max_tokens=40)
    tiring = plain.with_changes(logits_processors=(Tiring(2.0),))
    with LLM(model) as llm:
        for name, output in zip(
            ("plain", "tiring"), llm.generate(["List colours: red,"] * 2, [plain, tiring]), strict=True
        ):
            print(f"{name}: {output.text!r}")


if __name__ == "__main__":
    main(*sys.argv[1:])
