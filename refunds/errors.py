"""A refusal that somebody can act on. Its codes are in :mod:`refunds.codes`, what each means in :mod:`refunds.meanings`."""

from typing import Any

from refunds.codes import Code
from refunds.meanings import CATALOGUE, Meaning

__all__ = ["CATALOGUE", "Code", "Meaning", "RefundError"]


class RefundError(Exception):
    """A refusal somebody can act on: a stable code, a sentence, the field it is about, and ids.

    Deliberately an exception of the domain: the API turns it into ``application/problem+json``, the terminal into one line. ``detail`` never
    contains secrets or customer text.
    """

    def __init__(self, code: Code, detail: str | None = None, *, field: str | None = None, **ids: Any) -> None:
        self.code = code
        self.meaning = CATALOGUE[code]
        self.detail = detail or self.meaning.meaning
        self.field = field
        self.ids = ids
        super().__init__(f"{code}: {self.detail}")
