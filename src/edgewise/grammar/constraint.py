"""GrammarConstraint: one sequence's place in a grammar. Engine thread only."""

from __future__ import annotations

import copy
import logging

import numpy as np
import numpy.typing as npt
from llguidance import LLMatcher

from edgewise.core.errors import InvalidRequestError
from edgewise.grammar.schema import short_reason
from edgewise.grammar.thinking import ThinkingBudget
from edgewise.grammar.tokens import TokenTable

logger = logging.getLogger("edgewise.grammar")


class GrammarConstraint:
    """Implements `core.requests.TokenConstraint`.

    Forced tokens are computed once for a whole forced stretch, as the tokenizer would write it, and kept until they are accepted. So an
    engine that takes them all at once and one that takes one a step get the same tokens.
    """

    def __init__(
        self,
        matcher: LLMatcher,
        table: TokenTable,
        budget: ThinkingBudget | None,
        spare: LLMatcher | None = None,
    ) -> None:
        """Owns `matcher` and `spare`, which takes its place, at the same token, where it grows too complex: it allows all that
        `matcher` does. The grammar engine's vocabulary may have an end token more than the model's."""
        self._matcher = matcher
        self._spare = spare
        self._taken: list[int] = []  # what the spare one has still to be told
        self._table = table
        self._budget = budget
        words = np.zeros(-(-table.engine.vocab_size // 32), np.uint32)
        self._address, self._num_bytes = words.ctypes.data, words.nbytes
        self._mask = words[: -(-table.vocab_size // 32)]
        self._has_mask = False  # of where the matcher stands now
        self._forced: list[int] | None = None  # from here on; None: not known

    def mask(self) -> npt.NDArray[np.uint32] | None:
        """u32[ceil(V / 32)], valid until the next call.

        Raises InvalidRequestError where the grammar grew too complex or allows nothing more: it came with the request.
        """
        if not self._has_mask:
            self._matcher.unsafe_compute_mask_ptr(self._address, self._num_bytes)
            if self._goes_on_with_spare():
                return self.mask()
            self._check()
            self._has_mask = True
        return self._mask

    def forced(self) -> list[int]:
        if self._forced is None:
            self._forced = self._closing() or self._forced_ahead()
        return self._forced

    def _forced_ahead(self) -> list[int]:
        """Where the mask, which is needed anyway, leaves a choice of the next byte, nothing is forced: that is quicker than asking."""
        self.mask()
        bits = int.from_bytes(
            self._mask.data, "little"
        )  # a few microseconds, several times quicker than NumPy
        if bits:
            lowest, highest = (bits & -bits).bit_length() - 1, bits.bit_length() - 1
            if self._table.first_bytes[lowest] != self._table.first_bytes[highest]:
                return []
        forced = self._matcher.compute_ff_tokens()
        if self._goes_on_with_spare():
            return []
        self._check()
        return forced

    def _closing(self) -> list[int]:
        """The closing text of thinking that has used up its tokens, once the text so far can go on with it."""
        if self._budget is None or not self._budget.is_due:
            return []
        ids = self._budget.closing_ids
        return ids if self._matcher.validate_tokens(ids) == len(ids) else []

    def accept(self, token: int) -> bool:
        """Raises InvalidRequestError for a token the grammar does not allow."""
        self._forced = self._forced[1:] if self._forced and self._forced[0] == token else None
        if not self._forced:
            self._forced = None
        self._has_mask = False
        if self._spare is not None:
            self._taken.append(token)
        if not self._matcher.consume_token(token) and not self._goes_on_with_spare():
            self._check()
        if self._budget is not None:
            self._budget.accept(token)
        return self._matcher.is_stopped()

    def fork(self) -> GrammarConstraint:
        spare = self._spare and self._spare.deep_copy()
        twin = GrammarConstraint(self._matcher.deep_copy(), self._table, copy.copy(self._budget), spare)
        twin._forced, twin._taken = self._forced, self._taken.copy()
        return twin

    def _goes_on_with_spare(self) -> bool:
        """Whether the matcher has failed, and the spare one stands in its place now."""
        if self._spare is None or not self._matcher.is_error():
            return False
        reason = short_reason(self._matcher.get_error())
        if not self._spare.consume_tokens(self._taken):
            return False  # what was taken is not allowed at all
        logger.warning("a text is no longer bound by its pattern: %s", reason)
        self._matcher, self._spare = self._spare, None
        self._has_mask, self._forced, self._taken = False, None, []
        return True

    def _check(self) -> None:
        if self._matcher.is_error():
            raise InvalidRequestError(f"the grammar failed: {short_reason(self._matcher.get_error())}")
