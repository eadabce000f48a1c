"""What the hand-written pages say exists: files they link, commands they name, codes they explain, runbooks that refunds point to."""

import re
import shlex
from pathlib import Path

import pytest
import typer.main

from cli.main import app
from refunds.errors import Code
from refunds.settings import Settings
from store.situations import RUNBOOKS

ROOT = Path(__file__).parents[2]
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs/architecture.md", "docs/demo.md")),
    *sorted((ROOT / "docs/decisions").glob("*.md")),
    *sorted((ROOT / "docs/runbooks").glob("*.md")),
]
IDS = [str(page.relative_to(ROOT)) for page in PAGES]


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_every_link_leads_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text())

    assert [target for target in targets if not (page.parent / target).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_every_code_is_in_the_catalogue_and_every_setting_is_one(page: Path) -> None:
    words = set(re.findall(r"`([A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+)`", page.read_text()))
    known = set(Code) | {name.upper() for name in Settings.model_fields}
    others = {
        "DATABASE_URL_OWNER",
        "DATABASE_URL_AUDITOR",
        "TEMPORAL_ADDRESS",
        "TEMPORAL_NAMESPACE",
        "REFUNDS_API_URL",
        "REFUNDS_API_KEY",
        "REFUNDS_HOME",
    }
    others |= {"SCHEMA_REVISION", "REFUNDS_STRIPE_SCHEMA", "REFUNDS_STRIPE_RECORDED", "REFUNDS_INTENTS_DIR", "REFUNDS_INJECTIONS"}
    others |= {"REFUNDS_C2SP_PYTHON"}

    assert words - known - others == set()


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_every_command_and_option_exists(page: Path) -> None:
    group = typer.main.get_command(app)
    for line in re.findall(r"(?:^|`|&& )(refunds [a-z][^`\n]*)", page.read_text(), flags=re.MULTILINE):
        words = shlex.split(line.partition("#")[0].partition("&&")[0].partition(" > ")[0])[1:]
        command = group
        while words and words[0] in getattr(command, "commands", {}):
            command = command.commands[words.pop(0)]
        options = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)} | {"--help"}
        assert command is not group, f"{line!r} is no command"
        assert {word for word in words if word.startswith("--")} <= options, line


def test_every_file_that_answers_a_question_is_there() -> None:
    named = re.findall(r"`([a-z_]+(?:/[a-z_]+)+\.py)`", (ROOT / "docs/files.md").read_text())

    assert [file for file in named if not (ROOT / file).is_file()] == []
    assert len(named) > 100


def test_every_runbook_that_a_refund_names_exists() -> None:
    assert {path for path in RUNBOOKS.values() if not (ROOT / path).is_file()} == set()


def test_every_decision_names_what_enforces_it() -> None:
    pages = sorted((ROOT / "docs/decisions").glob("0*.md"))

    assert [page.name[:4] for page in pages] == [f"{number:04}" for number in range(1, len(pages) + 1)], "numbered without a gap"
    assert len(pages) >= 9
    for page in pages:
        text = page.read_text()
        parts = ("**Context.**", "**Decision.**", "**Consequences.**", "**Alternatives.**", "**Enforced by.**")
        assert [part for part in parts if part not in text] == [], page.name
        assert page.name in (ROOT / "docs/decisions/README.md").read_text()
