"""Which readers of text may be given which kinds of data: nothing is allowed that the setting does not name (promise P11).

A reader is a provider, a model and the region it is served from. Our own rules are a reader as well: they run in this process, nothing leaves, and so they
may read what they need without being named.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

ANY_MODEL = "*"
_PART = re.compile(r"[\w.:/@*+-]{1,120}", re.ASCII)
_REGION = re.compile(r"[a-z0-9][a-z0-9._-]{0,59}")
_HOW = "write provider:model@region=kind,kind with ; between several, such as openai:gpt-5-mini@eu=message"


class DataKind(StrEnum):
    """Kinds of data about a person that a reader could be given."""

    MESSAGE = "message"
    CONVERSATION = "conversation"
    AGENT_REASONING = "agent_reasoning"
    NOTES = "notes"
    ORDER_LINES = "order_lines"


@dataclass(frozen=True, slots=True)
class Reader:
    """Who would read. ``region`` is what the operator says of the address that the model is called at: an address cannot tell."""

    provider: str
    model: str
    region: str | None

    def __str__(self) -> str:
        return f"{self.provider}:{self.model}@{self.region or 'no region'}"


IN_PROCESS = Reader("rules", "patterns", "in_process")
"""The rules: they run here, and nothing leaves."""


@dataclass(frozen=True, slots=True)
class Allowance:
    """What one reader, or every model of one provider in one region, may be given."""

    provider: str
    model: str
    region: str
    kinds: frozenset[DataKind]

    def covers(self, reader: Reader) -> bool:
        """Whether it speaks of this reader."""
        return (self.provider, self.region) == (reader.provider, reader.region) and self.model in (ANY_MODEL, reader.model)


def named(model: str, region: str | None) -> Reader:
    """The reader that a model's full name (``openai:gpt-5-mini``) and a region mean."""
    provider, _, name = model.partition(":")
    return Reader(provider, name, region)


def parse_allowances(text: str) -> tuple[Allowance, ...]:
    """Read the setting; empty is none. Raises ``ValueError`` that says what is wrong with which part."""
    return tuple(_allowance(part.strip()) for part in text.split(";") if part.strip())


def _allowance(text: str) -> Allowance:
    who, equals, kinds = text.rpartition("=")
    full, at, region = who.rpartition("@")
    provider, colon, model = full.partition(":")
    if not (equals and at and colon) or not _PART.fullmatch(provider) or not _PART.fullmatch(model) or not _REGION.fullmatch(region):
        raise ValueError(f"{text[:80]!r} cannot be read: {_HOW}")
    if ANY_MODEL in provider or (ANY_MODEL in model and model != ANY_MODEL):
        raise ValueError(f"{text[:80]!r}: only a whole model may be *, never a provider or a part of a name")
    found: set[DataKind] = set()
    for kind in (kind.strip() for kind in kinds.split(",")):
        if kind not in list(DataKind):
            raise ValueError(f"{kind[:40]!r} is no kind of data; there are {', '.join(DataKind)}")
        found.add(DataKind(kind))
    return Allowance(provider, model, region, frozenset(found))


def may_read(reader: Reader, allowances: Iterable[Allowance]) -> frozenset[DataKind]:
    """What a reader may be given: all that some allowance names for it, the message alone for our own rules, otherwise nothing."""
    if reader == IN_PROCESS:
        return frozenset({DataKind.MESSAGE})
    return frozenset(kind for allowance in allowances if allowance.covers(reader) for kind in allowance.kinds)


def denied(reader: Reader, allowances: Iterable[Allowance]) -> tuple[DataKind, ...]:
    """What a reader may not be given, in the order of :class:`DataKind`."""
    allowed = may_read(reader, allowances)
    return tuple(kind for kind in DataKind if kind not in allowed)
