"""What is wrong with a value is told in words that say what to write, and not in the words of the library that found it."""

from datetime import datetime
from typing import Annotated, Any, Literal

import pytest
from pydantic import AwareDatetime, BaseModel, Field, StringConstraints, ValidationError

from refunds.orders import Said
from refunds.wording import in_words


class Part(BaseModel):
    name: str


class Form(BaseModel):
    reason: Annotated[Said, StringConstraints(max_length=5)] = "x"
    handle: Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_-]{0,63}$")] = "x"
    odd: Annotated[str, StringConstraints(pattern=r"^odd$")] = "odd"
    code: Annotated[str, StringConstraints(min_length=3, max_length=3)] = "USD"
    count: Annotated[int, Field(strict=True, ge=1, lt=5)] = 1
    on: bool = True
    kind: Literal["this", "that", "other"] = "this"
    when: AwareDatetime = datetime.fromisoformat("2026-03-01T12:00:00Z")
    parts: Annotated[list[Part], Field(min_length=1, max_length=2)] = [Part(name="x")]
    one: Part = Part(name="x")


def words(error: ValidationError) -> list[str]:
    return [in_words(one["type"], one["msg"], one.get("ctx", {})) for one in error.errors(include_input=False, include_url=False)]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"reason": "   "}, "It is blank: write it out."),
        ({"reason": ""}, "It is blank: write it out."),
        ({"reason": "\u200b \u2060"}, "it is blank: write it out"),
        ({"reason": "123456"}, "Write at most 5 characters."),
        ({"reason": "a\x00"}, "control characters such as NUL are not taken"),
        ({"reason": 7}, "Write text."),
        ({"handle": "Frau Müller"}, "Begin with a small letter; small letters, digits, _ and - may follow, 64 in all."),
        ({"odd": "even"}, "Write it in the form ^odd$."),
        ({"code": "US"}, "Write at least 3 characters."),
        ({"code": "USDT"}, "Write at most 3 characters."),
        ({"count": 0}, "Write 1 or more."),
        ({"count": 5}, "Write less than 5."),
        ({"count": "1"}, "Write a whole number."),
        ({"on": "perhaps"}, "Write true or false."),
        ({"kind": "none"}, "Write one of: 'this', 'that', 'other'."),
        ({"when": "yesterday"}, "Write a time like 2026-03-01T12:00:00Z."),
        ({"when": "2026-03-01T12:00:00"}, "Write a time like 2026-03-01T12:00:00Z."),
        ({"parts": []}, "Write at least 1 of them."),
        ({"parts": [{"name": "a"}] * 3}, "Write at most 2 of them."),
        ({"parts": {}}, "Write a list."),
        ({"one": []}, "Write names and values."),
        ({"one": {}}, "It is missing: give it."),
    ],
)
def test_what_is_wrong_is_told_in_words(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError) as refused:
        Form.model_validate(given)
    assert words(refused.value) == [said]


def test_what_is_right_is_taken_as_it_is() -> None:
    assert Form.model_validate({"reason": " war \u200b so "[:5]}).reason == "war"
