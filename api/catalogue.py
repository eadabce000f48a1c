"""``python -m api.catalogue``: print ``docs/errors.md`` from the catalogue of codes, which is the only place they are defined."""

import sys

from refunds.errors import CATALOGUE

_HEAD = """# Codes

Every code that a caller, a reviewer or an operator can meet. A code is stable for ever. Printed from `refunds/meanings.py` by
`python -m api.catalogue`; a test holds the two together.

Errors are `application/problem+json` (RFC 9457) with `code`, `detail` (what exactly), `field` and `errors` (where, and everything else that
is wrong with the body), `retryable` (whether the same call may simply be repeated), `remedy`, `request_id`, and ids.
"""

_PARTS = (
    ("Errors of calls", "The HTTP status of the answer. Nothing was changed by the call, except where the meaning says so.", True),
    (
        "Where refunds stand",
        "Codes of refunds that are denied, held, parked or failed, and of refused messages; never an error of a call by itself.",
        False,
    ),
)


def printed() -> str:
    """The whole page."""
    lines = [_HEAD]
    for title, about, of_calls in _PARTS:
        lines += [f"## {title}", "", about, "", "| code | HTTP | meaning | what to do | repeat? |", "|---|---|---|---|---|"]
        chosen = sorted((item for item in CATALOGUE.items() if bool(item[1].http) is of_calls), key=lambda item: (item[1].http, item[0]))
        lines += [
            f"| `{code}` | {meaning.http or ''} | {meaning.meaning} | {meaning.remedy} | {'yes' if meaning.retryable else ''} |"
            for code, meaning in chosen
        ]
        lines.append("")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.stdout.write(printed())
