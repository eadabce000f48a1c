"""Form-encoded nested parameters (`metadata[order]=1`, `expand[0]=charge`) as Stripe reads them."""

import re
from collections.abc import Collection
from typing import Any
from urllib.parse import parse_qsl

from deploy.sandbox.errors import invalid, missing_parameter, unknown_parameters

Params = dict[str, Any]
_INTEGER = re.compile(r"[+-]?\d{1,18}\Z")
_PART = re.compile(r"\[([^\]]*)\]")
METADATA_KEYS, METADATA_KEY_LENGTH, METADATA_VALUE_LENGTH = 50, 40, 500


def parse(encoded: str) -> tuple[Params, str]:
    """The nested parameters and one canonical text of them, equal whenever the parameters are equal in any order."""
    pairs = parse_qsl(encoded, keep_blank_values=True)
    nested: Params = {}
    for name, value in pairs:
        bracket = name.find("[")
        if bracket < 0:
            nested[name] = value
            continue
        target = nested.setdefault(name[:bracket], {})
        parts = _PART.findall(name[bracket:])
        if not isinstance(target, dict) or not parts:
            raise invalid(f"Invalid request: {name} is given both as a value and as a hash.", param=name)
        for part in parts[:-1]:
            target = target.setdefault(part or str(len(target)), {})
            if not isinstance(target, dict):
                raise invalid(f"Invalid request: {name} is given both as a value and as a hash.", param=name)
        target[parts[-1] or str(len(target))] = value
    return nested, "&".join(sorted(f"{name}={value}" for name, value in pairs))


def reject_unknown(params: Params, allowed: Collection[str], prefix: str = "") -> None:
    """Raises `parameter_unknown` (recorded), naming nested ones as `outer[inner]`."""
    unknown = [name for name in params if name not in allowed]
    if unknown:
        raise unknown_parameters([f"{prefix}[{name}]" if prefix else name for name in unknown])


def text(params: Params, name: str) -> str | None:
    """A string, or None when absent. An empty one is refused: it would mean unsetting."""
    value = params.get(name)
    if value is None:
        return None
    if not isinstance(value, str):
        raise invalid("Invalid string: expected a string.", param=name)
    if value == "":
        raise invalid(
            f"You passed an empty string for '{name}'. We assume empty values are an attempt to unset a parameter; however "
            f"'{name}' cannot be unset. You should remove '{name}' from your request or supply a non-empty value.",
            code="parameter_invalid_empty",
            param=name,
        )
    return value


def required_text(params: Params, name: str) -> str:
    value = text(params, name)
    if value is None:
        raise missing_parameter(name)
    return value


def integer(params: Params, name: str, *, least: int | None = None, most: int | None = None) -> int | None:
    """A whole number, or None when absent (`Invalid integer: abc` is recorded)."""
    value = text(params, name)
    if value is None:
        return None
    if not _INTEGER.match(value):
        raise invalid(f"Invalid integer: {value}", code="parameter_invalid_integer", param=name)
    number = int(value)
    for bound, crossed, words in (
        (least, least is not None and number < least, "greater"),
        (most, most is not None and number > most, "less"),
    ):
        if crossed:
            message = f"This value must be {words} than or equal to {bound}."
            raise invalid(message, code="parameter_invalid_integer", param=name)
    return number


def boolean(params: Params, name: str) -> bool:
    value = text(params, name)
    if value not in (None, "true", "false"):
        raise invalid(f"Invalid boolean: {value}", param=name)
    return value == "true"


def items(params: Params, name: str) -> list[str]:
    """An array of strings; empty when absent."""
    value = params.get(name)
    if value is None:
        return []
    if not isinstance(value, dict) or not all(isinstance(item, str) for item in value.values()):
        raise invalid("Invalid array", param=name)
    return list(value.values())


def metadata(params: Params, current: dict[str, str]) -> dict[str, str]:
    """`current` merged with what was posted: an empty value removes a key, an empty `metadata` removes all."""
    given = params.get("metadata")
    if given is None:
        return current
    if given == "":
        return {}
    if not isinstance(given, dict):
        raise invalid("Invalid object", param="metadata")
    merged = dict(current)
    for key, value in given.items():
        if not isinstance(value, str):
            raise invalid("Metadata values must be strings.", param=f"metadata[{key}]")
        if len(key) > METADATA_KEY_LENGTH:
            message = f"Metadata keys can have up to {METADATA_KEY_LENGTH} characters, but you passed in a key that is {len(key)}"
            raise invalid(f"{message} characters. Invalid key: {key}", param=f"metadata[{key}]")
        if len(value) > METADATA_VALUE_LENGTH:
            message = f"Metadata values can have up to {METADATA_VALUE_LENGTH} characters, but you passed in a value that is "
            raise invalid(f"{message}{len(value)} characters. Invalid value: {value}", param=f"metadata[{key}]")
        if value == "":
            merged.pop(key, None)
        else:
            merged[key] = value
    if len(merged) > METADATA_KEYS:
        raise invalid(f"You can only have up to {METADATA_KEYS} metadata keys.", param="metadata")
    return merged
