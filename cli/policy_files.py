"""A policy as it is named in the terminal: a published version by its number, the one in force, or a file."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cli.client import Api
from cli.problems import Misused

if TYPE_CHECKING:
    from refunds.policy import Policy

NOW = "now"


@dataclass(frozen=True, slots=True)
class Named:
    """A policy that can be used: its text, and what to call it."""

    source: str
    shown: dict[str, Any]

    @property
    def policy(self) -> "Policy":
        """What it says."""
        from refunds.policy import load_policy

        return load_policy(self.source, published=True)  # a file was checked when it was read

    @property
    def title(self) -> str:
        """What it is called in a heading."""
        version = self.shown.get("version")
        return f"version {version}" if version else str(self.shown["name"])


def named(text: str, option: str | None) -> Named:
    """What a number, ``now`` or the name of a file stands for. Raises :class:`cli.problems.Misused` for a file that is none or holds no policy.

    A file whose name is a number is named ``./7``.
    """
    if text == NOW:
        return from_api(None)
    if text.isascii() and text.isdigit():
        return from_api(int(text))
    path = Path(text)
    if not path.is_file():
        head = f"{option}: " if option else ""
        raise Misused(f"{head}{text} is neither the number of a version, nor {NOW!r}, nor a file that is there.")
    return Named(read(path), {"version": None, "name": path.name})


def from_api(version: int | None) -> Named:
    """A published version, or the one in force."""
    with Api() as api:
        answer = api.get("/v1/policy" if version is None else f"/v1/policy/versions/{version}")
    return Named(answer["source"], {"version": answer["version"], "hash": answer["hash"]})


def read(file: Path) -> str:
    """The text of a file that holds a policy that could be published.

    Raises :class:`cli.problems.Misused` with a line for each thing that is wrong with it.
    """
    from refunds.policy import LARGEST_BYTES, PolicyError
    from refunds.policy.probing import ready_to_publish

    try:
        with file.open("rb") as opened:
            raw = opened.read(LARGEST_BYTES + 1)
        text = raw.decode("utf-8")
        ready_to_publish(text)
    except OSError as error:
        raise Misused(f"{file} cannot be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise Misused(f"{file} is not UTF-8 text: byte {error.start} cannot be read.") from error
    except PolicyError as error:
        raise Misused("\n".join(f"{file}: {problem}" for problem in error.problems)) from error
    return text
