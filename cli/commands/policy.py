"""The policy: read its versions, check a file, compare two, publish one, and try one on past requests.

The rules' own library is slow to load and needed here only, so each command loads it when it runs.
"""

from typing import Annotated, Any

import typer

from cli import policy_files
from cli.client import Api
from cli.commands.simulating import simulate
from cli.options import File, Json, Yes, confirm, instant, past
from cli.output import Output
from cli.problems import Misused

DIFFERENT, LOOSER = 5, 6
"""Exit codes of ``diff --exit-code``: they differ, and something of it is looser."""

policy = typer.Typer(help="The rules that are in force, and changing them.", no_args_is_help=True)
policy.command("simulate")(simulate)


@policy.command("list")
def list_versions(
    most: Annotated[int, typer.Option("--limit", min=1, max=200, help="How many, the last published first.")] = 50,
    as_json: Json = False,
) -> None:
    """List the published versions."""
    out = Output(as_json)
    with Api() as api:
        answer = api.get("/v1/policy/versions", limit=most)
    if as_json:
        out.json(answer)
        return
    rows = [
        (row["version"], row["standing"].replace("_", " "), row["effective_from"], _author(row), row["hash"][:12], row["note"])
        for row in answer["versions"]
    ]
    out.table(("version", "standing", "from", "published by", "hash", "note"), rows, fold="note")
    if answer["next_before"] is not None:
        out.say(f"There are older ones; show them with --limit, or GET /v1/policy/versions?before={answer['next_before']}.")


@policy.command("show")
def show_policy(
    version: Annotated[int | None, typer.Option("--version", min=1, help="This version; the one in force by default.")] = None,
    at: Annotated[str | None, typer.Option("--at", metavar="TIME", help="The one that was, or will be, in force then.")] = None,
    table: Annotated[bool, typer.Option("--table", help="Setting by setting, instead of the text it was published as.")] = False,
    sample: Annotated[bool, typer.Option("--sample", help="The embedded sample instead; asks nobody.")] = False,
    as_json: Json = False,
) -> None:
    """Print a policy: as the YAML it was published as, or as a table for people."""
    out = Output(as_json)
    if sum((version is not None, at is not None, sample)) > 1:
        raise Misused("Name one of --version, --at and --sample.")
    answer = _answer(version, at, sample=sample)
    if as_json:
        out.json(answer)
        return
    if "version" in answer:
        out.say(
            f"Version {answer['version']} ({answer['standing'].replace('_', ' ')}), from {answer['effective_from']},"
            f" published by {_author(answer)}: {answer['note']}. Hash {answer['hash']}."
        )
    if table:
        from refunds.policy import load_policy
        from refunds.policy.diff import settings

        out.table(("setting", "value"), settings(load_policy(answer["source"], published=True)), fold="value")
    else:
        out.text(answer["source"])


def _answer(version: int | None, at: str | None, *, sample: bool) -> dict[str, Any]:
    if sample:
        from refunds.policy import sample_policy_text

        return {"source": sample_policy_text()}
    with Api() as api:
        if version is not None:
            return api.get(f"/v1/policy/versions/{version}")
        return api.get("/v1/policy", at=None if at is None else past(at, "--at"))


@policy.command("check")
def check_policy(file: File, as_json: Json = False) -> None:
    """Check a policy file and explain what is wrong with it, line by line. Asks nobody."""
    from refunds.policy import load_policy, policy_hash

    out = Output(as_json)
    checked = load_policy(policy_files.read(file))
    digest = policy_hash(checked)
    if as_json:
        out.json({"name": checked.name, "hash": digest})
        return
    out.fields([("name", checked.name), ("hash", digest), ("rules", len(checked.rules)), ("ladders", ", ".join(checked.review))])
    out.say(f"{file} can be published.")


@policy.command("publish")
def publish_policy(
    file: File,
    note: Annotated[str, typer.Option("--note", help="Why; it is recorded.")],
    effective: Annotated[str | None, typer.Option("--effective", metavar="TIME", help="RFC 3339; at once by default.")] = None,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Publish a policy version. Refunds that are under way keep the version they were quoted under, orders the return rules they were placed under.

    Safe to repeat: what would be in force then anyway is not published again.
    """
    from refunds.policy import load_policy

    out = Output(as_json)
    text = policy_files.read(file)
    when = instant(effective, "--effective")
    confirm(out, f"Publish {load_policy(text).name!r} for every new refund{f' from {when} on' if when else ''}?", yes=yes)
    body = {"source": text, "effective_from": when, "note": note}
    with Api() as api:
        answer = api.post("/v1/policy/versions", {name: value for name, value in body.items() if value is not None})
    if as_json:
        out.json(answer)
        return
    out.fields([(name, answer.get(name)) for name in ("version", "hash", "effective_from")])
    if not answer.get("published", True):
        out.say(f"Nothing was published: version {answer['version']}, which is in force then, has exactly this content.")


@policy.command("diff")
def diff_policies(
    before: Annotated[str, typer.Argument(metavar="A", help="The number of a version, now, or a file.")],
    after: Annotated[str, typer.Argument(metavar="B", help="The same.")],
    exit_code: Annotated[
        bool, typer.Option("--exit-code", help=f"End with {DIFFERENT} when they differ, with {LOOSER} when something is looser in B.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Compare two policies, setting by setting, and say which way each difference goes."""
    from refunds.policy import policy_hash
    from refunds.policy.diff import differences

    out = Output(as_json)
    one, other = policy_files.named(before, None), policy_files.named(after, None)
    first, second = one.policy, other.policy
    found = differences(first, second)
    same = policy_hash(first) == policy_hash(second)
    if as_json:
        out.json({"before": one.shown, "after": other.shown, "same": same, "differences": [each.plain() for each in found]})
    elif found:
        rows = [(each.setting, each.before or "-", each.after or "-", each.direction.value) for each in found]
        out.table(("setting", one.title, other.title, "is"), rows, fold=other.title)
    else:
        out.say("They say the same." if same else "They say the same; only the order in which they say it differs.")
    if exit_code and not same:
        raise typer.Exit(LOOSER if any(each.direction == "looser" for each in found) else DIFFERENT)


def _author(row: dict[str, Any]) -> str:
    return row["author"]["handle"] if row["author"] else "the embedded sample"
