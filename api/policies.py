"""Policy versions as the API takes and shows them."""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import AwareDatetime, Field, StringConstraints, model_validator

from api.schemas import Shape, Who
from refunds.errors import Code
from refunds.orders import Instant, Said, Strict
from refunds.policy import LARGEST_BYTES, Policy, PolicyError, Problem
from refunds.policy.positions import read

Source = Annotated[str, StringConstraints(min_length=1, max_length=LARGEST_BYTES)]
VersionNumber = Annotated[int, Field(strict=True, ge=1, le=2**31 - 1)]
Standing = Literal["in_force", "scheduled", "superseded"]


class NewVersion(Strict):
    """A policy as YAML, from when it holds (at once, when left out), and why."""

    source: Source
    effective_from: Instant | None = None
    note: Annotated[Said, StringConstraints(max_length=500)]


class NewSimulation(Strict):
    """Which rules to try: a policy as YAML, or a published version; against which version (the one in force, when left out); on requests of which time."""

    source: Source | None = None
    version: VersionNumber | None = None
    against: VersionNumber | None = None
    since: Instant | None = None
    until: Instant | None = None

    @model_validator(mode="after")
    def _one_of_them(self) -> "NewSimulation":
        if (self.source is None) == (self.version is None):
            raise ValueError("version: name either a version or give a source, and not both")
        if self.since and self.until and self.since >= self.until:
            raise ValueError("until: it must be later than since")
        return self


class PolicyVersion(Shape):
    """A published version without its text. It is never edited."""

    version: int
    hash: str
    effective_from: AwareDatetime
    standing: Annotated[Standing, Field(description="Whether it is in force now, will be, or was (or never came to be).")]
    author_id: Annotated[str | None, Field(description="Nobody: the embedded sample.")]
    author: Who | None
    note: str
    created_at: AwareDatetime


class PolicyView(PolicyVersion):
    """A published version with its text."""

    source: str


class PolicyPublished(PolicyView):
    """What publishing came to. Where the version that would be in force then has exactly this content, nothing was published and that one is shown."""

    published: bool


class PolicyVersions(Shape):
    """Published versions, the last one first."""

    in_force: int
    versions: list[PolicyVersion]
    next_before: Annotated[int | None, Field(description="Where the next page goes on: `?before=`.")]


def shown(row: Mapping[str, Any], *, in_force: int, now: datetime) -> dict[str, Any]:
    """A version, with its text where the row has it."""
    author = None
    if row["author_handle"] is not None:
        author = {"id": row["author_id"], "handle": row["author_handle"], "name": row["author_name"]}
    standing = "scheduled" if row["effective_from"] > now else "in_force" if row["version"] == in_force else "superseded"
    plain = {name: value for name, value in row.items() if name not in ("author_handle", "author_name")}
    return plain | {"author": author, "standing": standing}


def problems(error: PolicyError) -> list[dict[str, Any]]:
    """What is wrong with a policy's text, each with its place in it."""
    return [problem(p) for p in error.problems]


def problem(found: Problem) -> dict[str, Any]:
    """One thing that is wrong with a policy's text."""
    return {
        "field": "source",
        "code": Code.INVALID_FIELD.value,
        "detail": f"line {found.line}, {found.path or 'the whole'}: {found.problem}. {found.remedy}",
        "line": found.line,
        "column": found.column,
        "path": found.path,
    }


def without_a_rate(policy: Policy, source: str, *, instead_of: Policy, rated: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The currencies that this policy adds (or all, with another base currency) and that no recorded rate says the worth of: ``rated`` are those that have one.

    Those that the version before it has already are told by their checks: a person looks.
    """
    if policy.base is None:
        return []
    known = set(instead_of.currencies) if instead_of.base == policy.base else set[str]()
    placed = read(source)
    found: list[dict[str, Any]] = []
    for code in policy.currencies:
        if code == policy.base or code in known or code in rated:
            continue
        mark = placed.mark(("currencies", code))
        what = f"no rate of {code} in {policy.base} is recorded, so its refunds could not be counted"
        remedy = f"Record one first: refunds rates set {code} RATE --base {policy.base} --source WHERE."
        found.append(problem(Problem(mark.line, mark.column, f"currencies.{code}", what, remedy)))
    return found
