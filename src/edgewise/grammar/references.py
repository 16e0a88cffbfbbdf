"""`$ref`s that lead back to themselves without anything on the way: no value satisfies them, and the grammar engine does not see it.

A schema can be satisfied if its reference can, all of `allOf`, one of `anyOf` and of `oneOf`, and, for an object, each property it
requires. What can be is found from the inside out; what never is found is a loop.
"""

from __future__ import annotations

from typing import Any

from edgewise.grammar.subschemas import Path, subschemas

_MAX_PASSES = 100  # chains longer than this in the wrong order are taken to end


def leave_out_loops(schema: dict[str, Any]) -> list[Path]:
    """Take every `$ref` out of `schema` that nothing can satisfy, the innermost first. Returns where they were."""
    left_out: list[Path] = []
    while (path := _innermost_loop(schema)) is not None:
        node = next(node for place, node in subschemas(schema) if place == path)
        del node["$ref"]
        left_out.append(path)
    return left_out


def _innermost_loop(schema: dict[str, Any]) -> Path | None:
    nodes = dict(subschemas(schema))
    if not any("$ref" in node for node in nodes.values()):
        return None
    places = {"/".join(["#", *map(_escaped, path)]): node for path, node in nodes.items()}
    fine = _satisfiable(places)
    loops = [path for path, node in nodes.items() if "$ref" in node and id(node) not in fine]
    return max(loops, key=len, default=None)


def _escaped(step: str | int) -> str:
    return str(step).replace("~", "~0").replace("/", "~1")


def _satisfiable(places: dict[str, dict[str, Any]]) -> set[int]:
    """The ids of the schemas that a value can satisfy, as far as references decide it."""
    undecided = list(places.values())
    fine: set[int] = set()
    for _ in range(_MAX_PASSES):
        left = [node for node in reversed(undecided) if not _is_fine(node, places, fine)]
        if len(left) == len(undecided):
            return fine
        undecided = left  # turned round, so that chains are found in either order
    return fine | set(map(id, undecided))


def _is_fine(node: dict[str, Any], places: dict[str, dict[str, Any]], fine: set[int]) -> bool:
    def known(schema: Any) -> bool:
        return not isinstance(schema, dict) or id(schema) in fine

    needed = [places.get(str(node["$ref"]))] if "$ref" in node else []
    needed += _list(node, "allOf") + _required(node)
    choices = [some for key in ("anyOf", "oneOf") if (some := _list(node, key))]
    if all(map(known, needed)) and all(any(map(known, some)) for some in choices):
        fine.add(id(node))
        return True
    return False


def _list(node: dict[str, Any], key: str) -> list[Any]:
    value = node.get(key)
    return value if isinstance(value, list) else []


def _required(node: dict[str, Any]) -> list[Any]:
    properties = node.get("properties")
    if node.get("type") != "object" or not isinstance(properties, dict):
        return []
    return [properties.get(name) for name in _list(node, "required") if isinstance(name, str)]
