"""Which operating-system account the database server runs as, and what that account can reach.

PostgreSQL refuses to run as root, on purpose. When the stack is started by root (a container, a fresh machine) the
server is given an existing unprivileged account; no account is ever created. Started by anyone else, it runs as them.
"""

import os
import pwd
import subprocess
from dataclasses import dataclass
from pathlib import Path

PREFERRED = ("postgres", "nobody", "daemon")


class NoAccountError(RuntimeError):
    """Root has no unprivileged account to hand the database to, or the caller is unknown to the password file."""


@dataclass(frozen=True)
class Account:
    """An unprivileged account; processes started with it carry no supplementary groups."""

    name: str
    uid: int
    gid: int


def unprivileged(data: Path | None = None) -> Account | None:
    """The account for the server, or None when this process is unprivileged itself (the server runs as the caller).

    When `data` exists and belongs to somebody other than root, that owner is kept: a stack first started by a person
    and later by root goes on with the same files.

    Raises NoAccountError when root finds no account to use.
    """
    if os.geteuid() != 0:
        return None
    if data is not None and data.exists() and (owner := data.stat()).st_uid != 0:
        return Account(_name(owner.st_uid), owner.st_uid, owner.st_gid)
    entries = {entry.pw_name: entry for entry in pwd.getpwall() if entry.pw_uid != 0}
    for name in (*PREFERRED, *entries):
        if name in entries:
            return Account(name, entries[name].pw_uid, entries[name].pw_gid)
    raise NoAccountError("PostgreSQL must not run as root, and this machine has no other account to run it as.")


def require_known_caller() -> None:
    """Raise NoAccountError when the caller's uid has no entry in the password file; `initdb` refuses such a uid."""
    try:
        pwd.getpwuid(os.geteuid())
    except KeyError:
        raise NoAccountError(
            f"uid {os.geteuid()} has no entry in the password file, and PostgreSQL's initdb refuses to work for such"
            " a uid. Add an entry, run as root, or set DATABASE_URL to use a PostgreSQL of your own."
        ) from None


def allowed(account: Account | None, test: str, path: Path) -> bool:
    """Whether the account may do `test` ("r", "w" or "x") to the path; asked of the kernel by trying it as them.

    Mode bits alone would not tell: access lists and every directory on the way count too.
    """
    if account is None:
        return os.access(path, {"r": os.R_OK, "w": os.W_OK, "x": os.X_OK}[test])
    result = subprocess.run(
        ["/bin/sh", "-c", f'test -{test} "$1"', "sh", str(path)],
        user=account.uid,
        group=account.gid,
        extra_groups=[],
        cwd="/",
        env={},
        stderr=subprocess.DEVNULL,
        check=False,
    )
    return result.returncode == 0


def give(account: Account | None, path: Path) -> None:
    """Make the path belong to the account (nothing to do when it is the caller)."""
    if account is not None:
        os.chown(path, account.uid, account.gid)


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"
