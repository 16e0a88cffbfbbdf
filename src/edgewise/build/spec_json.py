"""DecoderSpec to JSON values and back.

Layers repeat a few kinds, so the JSON holds each distinct layer once and a list of indices. Reading is strict: an unknown or
missing field means that another version wrote it, and is an error rather than a guess.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from typing import Any

from edgewise.core.spec import AttentionSpec, DecoderSpec, LayerSpec, RecurrentSpec

_MIXERS: dict[str, type] = {"attention": AttentionSpec, "recurrent": RecurrentSpec}


def spec_to_json(spec: DecoderSpec) -> dict[str, Any]:
    """JSON values only: objects, lists, strings, numbers, booleans, null."""
    kinds = list(dict.fromkeys(spec.layers))
    out = {
        field.name: getattr(spec, field.name) for field in dataclasses.fields(spec) if field.name != "layers"
    }
    out["layer_kinds"] = [_layer_to_json(kind) for kind in kinds]
    out["layers"] = [kinds.index(layer) for layer in spec.layers]
    return out


def spec_from_json(data: dict[str, Any]) -> DecoderSpec:
    """The inverse of `spec_to_json`. Raises ValueError saying which field is at fault."""
    rest = dict(data)
    kinds = [_layer_from_json(kind) for kind in _expect(list, rest.pop("layer_kinds", None), "layer_kinds")]
    indices = _expect(list, rest.pop("layers", None), "layers")
    if not all(type(index) is int and 0 <= index < len(kinds) for index in indices):
        raise ValueError("layers: must be indices into layer_kinds")
    fields = _checked_fields(DecoderSpec, rest, "spec", skip=("layers",))
    return DecoderSpec(layers=tuple(kinds[index] for index in indices), **fields)


def _layer_to_json(layer: LayerSpec) -> dict[str, Any]:
    out = dataclasses.asdict(layer)
    name = next(name for name, kind in _MIXERS.items() if isinstance(layer.mixer, kind))
    out["mixer"] = {"type": name, **out["mixer"]}
    return out


def _layer_from_json(data: Any) -> LayerSpec:
    rest = dict(_expect(dict, data, "layer"))
    mixer = dict(_expect(dict, rest.pop("mixer", None), "mixer"))
    kind = _MIXERS.get(str(mixer.pop("type", None)))
    if kind is None:
        raise ValueError("mixer: unknown type")
    fields = _checked_fields(LayerSpec, rest, "layer", skip=("mixer",))
    return LayerSpec(mixer=_build(kind, mixer, "mixer"), **fields)


def _build(cls: type, data: Any, where: str) -> Any:
    return cls(**_checked_fields(cls, _expect(dict, data, where), where))


def _checked_fields(
    cls: type, data: dict[str, Any], where: str, skip: tuple[str, ...] = ()
) -> dict[str, Any]:
    """Values of a dataclass's fields, each converted to its declared type; exactly those fields must be there."""
    hints = typing.get_type_hints(cls)
    names = {field.name for field in dataclasses.fields(cls)} - set(skip)
    if odd := names ^ set(data):
        raise ValueError(f"{where}: {'unknown' if odd & set(data) else 'missing'} field {sorted(odd)[0]!r}")
    return {name: _convert(hints[name], data[name], f"{where}.{name}") for name in names}


def _convert(hint: Any, value: Any, where: str) -> Any:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Literal:
        if value not in arguments:
            raise ValueError(f"{where}: unknown value {value!r}")
        return value
    if origin in (types.UnionType, typing.Union):
        inner = next(a for a in arguments if a is not type(None))
        return None if value is None else _convert(inner, value, where)
    if origin is tuple:
        return tuple(_convert(arguments[0], item, where) for item in _expect(list, value, where))
    if origin is dict:
        return _expect(dict, value, where)
    if dataclasses.is_dataclass(hint):
        return _build(typing.cast("type", hint), value, where)
    if hint is float and type(value) is int:
        return float(value)
    return _expect(hint, value, where)


def _expect(kind: type, value: Any, where: str) -> Any:
    if type(value) is not kind:
        raise ValueError(f"{where}: expected {kind.__name__}, got {type(value).__name__}")
    return value
