"""Whose objects a call sees: one account's, in one mode. The same id in another scope does not exist for it.

A scope is written as text: empty for the platform in test mode, `acct_...` for a connected account, and the same behind `live:` in live mode.
"""

PLATFORM = ""
_LIVE = "live:"


def scope(account: str | None = None, *, live: bool = False) -> str:
    """The scope of a connected account (None: of the platform) in a mode."""
    return (_LIVE if live else "") + (account or "")


def is_live(found: str) -> bool:
    return found.startswith(_LIVE)


def account_of(found: str) -> str | None:
    """The connected account of a scope; None for the platform."""
    return found.removeprefix(_LIVE) or None


def same_mode(found: str, account: str | None) -> str:
    """Another account's scope (None: the platform's) in the mode of this one."""
    return scope(account, live=is_live(found))


def other_mode(found: str) -> str:
    """The scope of the same account in the other mode."""
    return scope(account_of(found), live=not is_live(found))
