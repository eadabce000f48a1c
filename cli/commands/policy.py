"""The policy: read it, check a file, publish a version.

The rules' own library is slow to load and needed here only, so each command loads it when it runs.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.client import Api
from cli.options import File, Json, Yes, confirm, instant
from cli.output import Output
from cli.problems import Misused

if TYPE_CHECKING:
    from refunds.policy import Policy

policy = typer.Typer(help="The rules that are in force.", no_args_is_help=True)


@policy.command("show")
def show_policy(
    sample: Annotated[bool, typer.Option("--sample", help="The embedded sample instead; asks nobody.")] = False, as_json: Json = False
) -> None:
    """Print the policy in force as the YAML it was published as."""
    out = Output(as_json)
    if sample:
        from refunds.policy import sample_policy_text

        answer = {"source": sample_policy_text()}
    else:
        with Api() as api:
            answer = api.get("/v1/policy")
    if as_json:
        out.json(answer)
        return
    if "version" in answer:
        out.say(f"Version {answer['version']}, in force since {answer.get('effective_from')}, hash {answer.get('hash')}.")
    out.text(answer["source"])


@policy.command("check")
def check_policy(file: File, as_json: Json = False) -> None:
    """Check a policy file and explain what is wrong with it, line by line. Asks nobody."""
    from refunds.policy import policy_hash

    out = Output(as_json)
    _, checked = _read(file)
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
    """Publish a policy version. Refunds that are under way keep the version they were quoted under."""
    out = Output(as_json)
    text, checked = _read(file)
    confirm(out, f"Publish {checked.name!r} for every new refund?", yes=yes)
    body = {"source": text, "effective_from": instant(effective, "--effective"), "note": note}
    with Api() as api:
        answer = api.post("/v1/policy/versions", {name: value for name, value in body.items() if value is not None})
    if as_json:
        out.json(answer)
    else:
        out.fields([(name, answer.get(name)) for name in ("version", "hash", "effective_from")])


def _read(file: Path) -> tuple[str, "Policy"]:
    """The text and what it says. Raises :class:`Misused` with a line for each thing that is wrong with it."""
    from refunds.policy import PolicyError, load_policy

    try:
        text = file.read_text(encoding="utf-8")
        return text, load_policy(text)
    except UnicodeDecodeError as error:
        raise Misused(f"{file} is not UTF-8 text: byte {error.start} cannot be read.") from error
    except PolicyError as error:
        raise Misused("\n".join(f"{file}: {problem}" for problem in error.problems)) from error
