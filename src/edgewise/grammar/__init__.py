"""What an answer must look like -> token masks and forced tokens. The grammar engine is llguidance."""

from edgewise.grammar.compiler import CompiledConstraint, GrammarCompiler
from edgewise.grammar.limits import GrammarLimits
from edgewise.grammar.output import rule_of

__all__ = ["CompiledConstraint", "GrammarCompiler", "GrammarLimits", "rule_of"]
