"""python -I deploy/local/install.py requirements.lock: install what is locked, and say how far it is.

Run by `make` in a fresh virtual environment, so it uses the standard library only. pip itself says either several
hundred lines, among them a warning for each index that does not have a package, or nothing for minutes.
"""

import re
import subprocess
import sys
import time
from pathlib import Path

# A package that pip begins with, whether it comes from the network, a directory or is there already.
PACKAGE = re.compile(r"(?:Collecting|Processing|Requirement already satisfied:) (\S+).* \(from -r ")
ROUTINE = re.compile(
    r"\s*(?:Collecting|Processing|Requirement already satisfied|Downloading|Using cached|Obtaining|Looking in|Installing|Attempting"
    r"|Found existing|Uninstalling|Successfully|WARNING: Location .* is ignored)"
)
# Why nothing moves at the moment; anything else that is out of the ordinary matters only when it fails.
AT_ONCE = ("WARNING: Retrying",)
LINES_WITHOUT_TERMINAL = 5
INTERRUPTED = 130
"""What a shell calls the end of a program by Ctrl-C."""


class Progress:
    """One line that changes on a terminal; elsewhere a few lines in all."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._seen: set[str] = set()
        self._terminal = sys.stdout.isatty()
        self._every = max(total // LINES_WITHOUT_TERMINAL, 1)

    def package(self, name: str) -> None:
        """pip has come to this package."""
        if name in self._seen:
            return
        self._seen.add(name)
        if self._terminal or len(self._seen) % self._every == 0:
            self.say(f"  {len(self._seen)} of {self._total} fetched: {Path(name).name}")

    def say(self, text: str) -> None:
        """Show it in place of what was said before, or after it."""
        sys.stdout.write(f"\r\033[K{text}" if self._terminal else f"{text}\n")
        sys.stdout.flush()

    def end(self, text: str) -> None:
        """The last thing to say."""
        self.say(text + ("\n" if self._terminal else ""))


def install(lock: Path) -> int:
    """pip's own exit code; when it is not 0, everything pip said that is not routine has been shown."""
    progress = Progress(len(re.findall(r"^[A-Za-z0-9]", lock.read_text(), re.MULTILINE)))
    begun, unusual = time.monotonic(), list[str]()
    arguments = ("--disable-pip-version-check", "--require-virtualenv", "install", "--progress-bar", "off", "--require-hashes")
    with subprocess.Popen(
        [sys.executable, "-m", "pip", *arguments, "-r", str(lock)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as pip:
        for line in pip.stdout or ():
            if found := PACKAGE.match(line):
                progress.package(found[1])
            elif line.startswith("Installing collected"):
                progress.say("  all fetched; putting them in place")
            elif line.startswith(AT_ONCE):
                progress.say(f"  {line.rstrip()}")
            elif not ROUTINE.match(line):
                unusual.append(line)
    if pip.returncode == 0:
        progress.end(f"  done in {time.monotonic() - begun:.0f} s")
    else:
        progress.end("  failed:")
        sys.stderr.writelines(unusual)
    return pip.returncode


def main(lock: Path) -> int:
    """:func:`install`, or on Ctrl-C one line instead of a traceback: a half-made environment has no stamp, so the next `make` makes it anew."""
    try:
        return install(lock)
    except KeyboardInterrupt:
        sys.stderr.write("\nInterrupted; the next make starts anew.\n")
        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
