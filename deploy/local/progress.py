"""What the stack says while it works: a spinner and colours on a terminal, plain lines everywhere else."""

import time
from typing import Protocol

from rich.console import Console
from rich.status import Status


class Reporter(Protocol):
    """Told what happens to the parts; may be called from another thread than the one that started the stack."""

    def begin(self, name: str) -> None:
        """A part is being started."""
        ...

    def done(self, name: str, detail: str) -> None:
        """The part that was begun is ready."""
        ...

    def note(self, text: str) -> None:
        """Something a person should know, as a sentence."""
        ...

    def end(self) -> None:
        """Nothing is in progress any more."""
        ...


class ConsoleReporter:
    """Writes to a console; the time each part took is shown in seconds."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(highlight=False, soft_wrap=True)
        self._status: Status | None = None
        self._begun = time.monotonic()

    def begin(self, name: str) -> None:
        self.end()
        self._begun = time.monotonic()
        if self._console.is_terminal:
            self._status = self._console.status(f"starting {name} ...")
            self._status.start()

    def done(self, name: str, detail: str) -> None:
        seconds = time.monotonic() - self._begun
        self.end()
        self._console.print(f"[green]ready[/] {name:<14} {detail:<30} {seconds:5.1f} s", markup=True)

    def note(self, text: str) -> None:
        self._console.print(text, markup=False)

    def end(self) -> None:
        if self._status is not None:
            self._status.stop()
            self._status = None


class Silent:
    """Says nothing; keeps the notes, for tests and for programs that show progress in their own way."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def begin(self, name: str) -> None:
        return

    def done(self, name: str, detail: str) -> None:
        return

    def note(self, text: str) -> None:
        self.notes.append(text)

    def end(self) -> None:
        return
