"""How far an import has come: a small file beside its report, so that one that was cut off goes on there, and only with the same file."""

import hashlib
import json
import os
from dataclasses import asdict, dataclass, field
from io import BufferedReader
from pathlib import Path
from typing import Any

from cli.problems import Misused

OUTCOMES = ("created", "new_version", "unchanged", "failed")


@dataclass(frozen=True)
class Source:
    """What is imported, how it is read, and where it goes. An import goes on only with the same."""

    sha256: str
    size: int
    format: str
    locale: str
    target: str


@dataclass
class Progress:
    """What is confirmed: every order up to ``line`` is stored or in the report, whose first ``report_bytes`` bytes say so."""

    line: int = 0
    report_bytes: int = 0
    problems: int = 0
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(OUTCOMES, 0))
    paid: dict[str, int] = field(default_factory=dict[str, int])


class Checkpoint:
    """The file."""

    def __init__(self, path: Path, source: Source) -> None:
        self.path = path
        self._source = source

    def load(self) -> Progress | None:
        """How far an earlier import came, or ``None``. Raises :class:`Misused` when it was of another content, reading or target."""
        try:
            kept = json.loads(self.path.read_text(encoding="utf-8"))
            source, progress = Source(**kept["source"]), Progress(**kept["progress"])
        except FileNotFoundError:
            return None
        except (ValueError, TypeError, KeyError, OSError) as error:
            raise Misused(f"{self.path} cannot be read ({error}); begin again with --restart.") from error
        if source == self._source:
            return progress
        begin = "begin again with --restart: what is there already stays and makes no new versions"
        if (source.sha256, source.size) != (self._source.sha256, self._source.size):
            raise Misused(f"The file has changed since an import of it stopped after line {progress.line}; {begin}.")
        differs = [name for name in ("format", "locale", "target") if getattr(source, name) != getattr(self._source, name)]
        what = ", ".join(f"{name} {getattr(source, name)}" for name in differs)
        raise Misused(f"An import of this file stopped after line {progress.line}, with {what}; repeat that, or {begin}.")

    def save(self, progress: Progress) -> None:
        """Replace the file in one step, so that a kill at any moment leaves the old one or the new one."""
        kept: dict[str, Any] = {"source": asdict(self._source), "progress": asdict(progress)}
        new = self.path.with_name(self.path.name + ".new")
        try:
            with new.open("w", encoding="utf-8") as file:
                json.dump(kept, file)
                file.flush()
                os.fsync(file.fileno())
            new.replace(self.path)
        except OSError as error:
            raise Misused(f"{self.path} cannot be written: {error.strerror}.") from error

    def forget(self) -> None:
        """The import is done, or begins again."""
        self.path.unlink(missing_ok=True)


def digest(file: BufferedReader) -> str:
    """The SHA-256 of a whole file; it stands at its beginning afterwards."""
    found = hashlib.file_digest(file, "sha256").hexdigest()
    file.seek(0)
    return found
