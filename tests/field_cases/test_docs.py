"""docs/field-cases.md and the tests say the same."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "field-cases.md"
# The numbers the first version promised; later ones may only add to them.
PROMISED = frozenset({1, 3, 7, 16, 26, 28, 30, 34, 38, 39, 40, 43, 45, 53, 56, 57, 59, 61, 62, 63, 64, 65, 66, 69, 72})
SECTIONS = {int(found[1]): found[2] for found in re.finditer(r"^## (\d+) · (.+?)(?=^## |\Z)", PAGE.read_text(), re.MULTILINE | re.DOTALL)}
PARTS = ("Fault", "Promise", "Here", "Tests")


@cache
def functions(file: Path) -> frozenset[str]:
    return frozenset(
        node.name for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )


def named(section: str) -> list[tuple[str, str]]:
    return re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", section)


def numbers(name: str) -> set[int]:
    """The reports a test's name carries: test_field_39_40_... has two."""
    found: set[int] = set()
    for run in re.findall(r"field((?:_(?:and_)?(?:field_)?\d+)+)(?=_|$)", name):
        found |= {int(number) for number in re.findall(r"\d+", run)}
    return found


def test_every_promised_number_has_its_section() -> None:
    assert set(SECTIONS) >= PROMISED
    assert list(SECTIONS) == sorted(SECTIONS)


@pytest.mark.parametrize("number", SECTIONS)
def test_a_section_is_whole_and_its_tests_exist(number: int) -> None:
    section = SECTIONS[number]
    assert tuple(re.findall(r"^- \*\*(\w+)\.\*\*", section, re.MULTILINE)) == PARTS
    assert re.search(r"\*\*Promise\.\*\* P\d+(, P\d+)*$", section, re.MULTILINE)
    for path, name in named(section):
        assert name in functions(ROOT / path), f"{path}::{name}"
    assert any(number in numbers(name) for _, name in named(section)), "a test carries the number"
    for path in re.findall(r"`((?:refunds|store|workflows|activities|worker|api|cli|deploy|tests)/[\w/.]+)`", section):
        assert (ROOT / path).exists(), path


def test_every_number_that_a_test_carries_has_its_section() -> None:
    carried = {number for file in (ROOT / "tests").rglob("test_*.py") for name in functions(file) for number in numbers(name)}
    assert carried - set(SECTIONS) == set()
