"""YAML as plain values with the place of each: so that an error can name its line.

A small, strict part of YAML: mappings, sequences, texts, whole numbers, ``true`` / ``false``, ``null``. A number with decimals stays text, because money is
never a float. Anchors, tags of one's own, doubled names and deep nesting are refused: they have no use in a policy and hide what it says.
"""

import re
from dataclasses import dataclass, field
from typing import Any, cast

import yaml

Path = tuple[str | int, ...]

DEEPEST = 20
"""How deep a policy may nest; its real depth is five."""

MOST = 20_000
"""So many names and values a policy may have: reading far more would keep everything else waiting."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A place in the text; both count from 1."""

    line: int
    column: int


@dataclass(slots=True)
class Fault:
    """Something the text gets wrong by itself, whatever it means."""

    mark: Mark
    path: Path
    problem: str
    remedy: str


@dataclass(slots=True)
class Placed:
    """The plain value of a text, the place of every name and value in it, and its faults. ``ornaments`` are anchors and tags that are still to be told."""

    value: Any
    marks: dict[Path, Mark] = field(default_factory=dict[Path, Mark])
    faults: list[Fault] = field(default_factory=list[Fault])
    ornaments: dict[Mark, str] = field(default_factory=dict[Mark, str])

    def tell_ornament(self, mark: Mark, path: Path) -> None:
        """Tell of the anchor or tag that stands there, if one does, as a fault of ``path``."""
        if (what := self.ornaments.pop(mark, None)) is not None and not any(fault.mark == mark for fault in self.faults[-1:]):
            self.faults.append(Fault(mark, path, f"the {what} is not taken here", "Write the value plainly."))

    def mark(self, path: Path) -> Mark:
        """The place of ``path``, or of the nearest thing around it that the text has."""
        for length in range(len(path), -1, -1):
            if (found := self.marks.get(path[:length])) is not None:
                return found
        return Mark(1, 1)


_RESOLVED = (
    ("bool", r"^(?:true|false)$", [*"tf"]),
    ("int", r"^(?:0|-?[1-9][0-9]{0,17})$", [*"-0123456789"]),
    ("null", r"^(?:~|null|)$", ["~", "n", ""]),
)
"""What a plain value can be besides text: far less than YAML 1.1 has, where ``no`` is false and ``1:30`` is ninety."""


class _Loader(yaml.SafeLoader):
    """Composes nodes only; bounded in depth and, unless it was ``published``, in number; without aliases. ``ornaments`` are the anchors and tags it met."""

    yaml_implicit_resolvers: dict[str, Any] = {
        first: [(f"tag:yaml.org,2002:{kind}", re.compile(pattern)) for kind, pattern, firsts in _RESOLVED if first in firsts]
        for first in ["", *"tfn~-0123456789"]
    }

    def __init__(self, text: str, *, published: bool) -> None:
        super().__init__(text)
        self.published = published
        self.depth = self.nodes = 0
        self.ornaments: dict[Mark, str] = {}

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        event = cast("yaml.Event", self.peek_event())  # pyright: ignore[reportUnknownMemberType]
        if isinstance(event, yaml.AliasEvent):
            raise _not_taken(event, "a reference (*name) is not taken here", "Write the value out.")
        for what in ("anchor", "tag"):
            name: str | None = getattr(event, what)
            if name is not None:
                self.ornaments[Mark(event.start_mark.line + 1, event.start_mark.column + 1)] = f"{what} {name!r}"
        self.nodes += 1
        if self.nodes > MOST and not self.published:
            raise _not_taken(event, f"it has more than {MOST:,} names and values", "Shorten it.")
        self.depth += 1
        if self.depth > DEEPEST:
            raise _not_taken(event, f"it nests deeper than {DEEPEST}", "Correct the indentation or the brackets.")
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node


def _not_taken(event: yaml.Event, problem: str, remedy: str) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=problem, problem_mark=event.start_mark, note=remedy)


def read(text: str, *, published: bool = False) -> Placed:
    """Read YAML text. Never raises for what the text says: what is wrong is in ``faults``.

    A text that was ``published`` is read as it was then: anchors and tags that change nothing in it, and its size, are no faults any more.
    """
    placed = Placed(None)
    try:
        loader = _Loader(text, published=published)
        node = loader.get_single_node()
    except yaml.reader.ReaderError as error:
        placed.faults.append(_no_character(text, error.position))
        return placed
    except (OverflowError, ValueError):  # the library turns an escape such as \UFFFFFFFF into a character without looking
        escape = re.search(r"\\U(?!000|0010)[0-9A-Fa-f]{8}", text)
        placed.faults.append(_no_character(text, escape.start() if escape else 0))
        return placed
    except yaml.MarkedYAMLError as error:
        at = error.problem_mark or error.context_mark
        mark = Mark(at.line + 1, at.column + 1) if at else Mark(1, 1)
        what = "; ".join(part for part in (error.context, error.problem) if part)
        remedy = error.note or "Correct the indentation or the signs near this place."
        placed.faults.append(Fault(mark, (), f"not readable as YAML: {what}", remedy))
        return placed
    if node is None:
        placed.faults.append(Fault(Mark(1, 1), (), "the policy is empty", "Start from the sample policy."))
        return placed
    placed.ornaments = {} if published else loader.ornaments
    placed.value = _plain(node, (), placed)
    for mark in list(placed.ornaments):  # those of names
        placed.tell_ornament(mark, ())
    if placed.value is None and not placed.faults:
        placed.faults.append(Fault(Mark(1, 1), (), "the policy is empty", "Start from the sample policy."))
    return placed


def _no_character(text: str, position: int) -> Fault:
    before = text[:position]
    mark = Mark(before.count("\n") + 1, len(before) - before.rfind("\n"))
    return Fault(mark, (), "a character that text files do not have", "Remove it.")


def _mark(node: yaml.Node) -> Mark:
    return Mark(node.start_mark.line + 1, node.start_mark.column + 1)


def _plain(node: yaml.Node, path: Path, placed: Placed) -> Any:
    value = _value(node, path, placed)
    placed.tell_ornament(_mark(node), path)
    return value


def _value(node: yaml.Node, path: Path, placed: Placed) -> Any:
    placed.marks.setdefault(path, _mark(node))
    if isinstance(node, yaml.MappingNode):
        return _mapping(node, path, placed)
    if isinstance(node, yaml.SequenceNode):
        return tuple(_plain(item, (*path, index), placed) for index, item in enumerate(node.value))
    kind = str(node.tag).removeprefix("tag:yaml.org,2002:")
    value = str(node.value)
    if kind == "str":
        return value
    if kind == "int" and re.fullmatch(r"0|-?[1-9]\d{0,17}", value):
        return int(value)
    if kind == "bool" and value in ("true", "false"):
        return value == "true"
    if kind == "null":
        return None
    placed.faults.append(Fault(_mark(node), path, f"the tag {node.tag!r} is not taken here", "Write the value plainly."))
    return None


def _mapping(node: yaml.MappingNode, path: Path, placed: Placed) -> dict[str, Any]:
    plain: dict[str, Any] = {}
    for key, value in node.value:
        if not isinstance(key, yaml.ScalarNode):
            placed.faults.append(Fault(_mark(key), path, "a name must be a word", "Write name: value."))
            continue
        name = str(key.value)
        if name in plain:
            first = placed.marks[(*path, name)]
            problem = f"{name} is there twice; the first is in line {first.line}"
            placed.faults.append(Fault(_mark(key), (*path, name), problem, "Keep one of them."))
            continue
        placed.marks[(*path, name)] = _mark(key)
        plain[name] = _plain(value, (*path, name), placed)
    return plain
