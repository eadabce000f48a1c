"""What a log may be called, its keys having the same name (c2sp.org/signed-note), and where copies of its checkpoints may go."""

from urllib.parse import urlsplit


def check_name(name: str) -> None:
    """Raise ``ValueError`` unless the text can name a key and a log: something, without white space, control characters or a plus sign."""
    if not name or "+" in name or any(character.isspace() or ord(character) < 0x20 for character in name):
        raise ValueError(
            "the name of a log must have no white space and no plus sign; a domain and a path are usual, such as example.com/refunds"
        )


def goes_over_http(target: str) -> bool:
    """Whether a place for copies is an address; else it is a path."""
    return target.startswith(("http://", "https://"))


def is_address(target: str) -> bool:
    """Whether a text can be called as an address: with a host, and with a port that is one where it names any."""
    try:
        parts = urlsplit(target)
        return goes_over_http(target) and bool(parts.hostname) and target.isprintable() and " " not in target and parts.port != 0
    except ValueError:
        return False
