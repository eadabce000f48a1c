"""What a log may be called; its keys have the same name (c2sp.org/signed-note)."""


def check_name(name: str) -> None:
    """Raise ``ValueError`` unless the text can name a key and a log: something, without white space, control characters or a plus sign."""
    if not name or "+" in name or any(character.isspace() or ord(character) < 0x20 for character in name):
        raise ValueError(
            "the name of a log must have no white space and no plus sign; a domain and a path are usual, such as example.com/refunds"
        )
