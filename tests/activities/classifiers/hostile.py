"""What a model could answer, sound or hostile, and how an answer becomes a classification: by the same schema and checks as in the product."""

import json
from typing import Any

from hypothesis import strategies as st
from pydantic import ValidationError

from activities.classifiers.base import Failure, ReadingContext
from activities.classifiers.prompt import ModelAnswer
from activities.classifiers.signs import Sign
from activities.classifiers.verify import checked
from refunds.classification import Classification, Intent, Proposal, Source
from refunds.reasons import Reason

TEXT = "Please refund $30 for order ORD-1001, the mug arrived broken."
GOOD: dict[str, Any] = {
    "intent": "refund",
    "reason": "product_issue",
    "order_reference": "ORD-1001",
    "product_lines": ["mug"],
    "amount_text": "$30",
    "proposal": "approve",
    "confidence": 100,
    "rationale": "One clear refund.",
    "manipulation": [],
}
SMUGGLED: dict[str, Any] = {
    "amount": 50_000,
    "approver": "manager",
    "approved_by": "mia",
    "consent": True,
    "customer_authenticated": True,
    "tier": 2,
    "review": None,
    "payment_id": "pi_somebody_else",
    "status": "approved",
}


def classified(raw: str | None, text: str = TEXT) -> Classification:
    """What a raw answer comes to; ``None`` is no answer in time."""
    failure = Failure.TIMED_OUT if raw is None else Failure.MALFORMED
    reading = None
    if raw is not None:
        try:
            answer = ModelAnswer.model_validate_json(raw)
        except ValidationError:
            answer = None
        if answer is not None:
            reading = checked(answer.as_reading(), text, ReadingContext(currency="USD"), unknown_fields=answer.has_unknown_fields())
    return Classification(
        reading=reading,
        failure=None if reading else failure.value,
        source=Source.MODEL,
        classifier="model",
        model="hostile",
        version="1",
        prompt_hash="0" * 64,
    )


_SCALARS = (
    st.none() | st.booleans() | st.integers(-(10**15), 10**15) | st.text(max_size=30) | st.sampled_from(["approve", "manager", "$500"])
)
_JSON = st.recursive(
    _SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=12), inner, max_size=3), max_leaves=8
)
_LABELS: dict[str, st.SearchStrategy[Any]] = {
    "intent": st.sampled_from(list(Intent)).map(str),
    "reason": st.none() | st.sampled_from(list(Reason)).map(str),
    "order_reference": st.sampled_from([None, "ORD-1001", "1001", "ORD-9999", "mug"]),
    "product_lines": st.lists(st.sampled_from(["mug", "television"]), max_size=2),
    "amount_text": st.sampled_from([None, "$30", "$3000", "30", "30000000000"]),
    "proposal": st.sampled_from(list(Proposal)).map(str),
    "confidence": st.integers(0, 100) | st.just(100),
    "rationale": st.text(max_size=40),
    "manipulation": st.just([]) | st.lists(st.sampled_from(list(Sign)).map(str), max_size=2),
}
_WELL_FORMED = st.fixed_dictionaries(_LABELS)
_SMUGGLING = st.tuples(
    _WELL_FORMED, st.dictionaries(st.sampled_from(sorted(SMUGGLED)) | st.text(max_size=10), _JSON, min_size=1, max_size=4)
)
_BROKEN = st.tuples(_WELL_FORMED, st.sampled_from(sorted(_LABELS)), _JSON).map(lambda parts: parts[0] | {parts[1]: parts[2]})

answers: st.SearchStrategy[str | None] = st.one_of(
    st.none(),
    _WELL_FORMED.map(json.dumps),
    _SMUGGLING.map(lambda parts: json.dumps(parts[1] | parts[0])),
    _BROKEN.map(json.dumps),
    _JSON.map(json.dumps),
    st.text(max_size=60),
)
"""Raw answers: none at all, well formed, with fields that nobody asked for, of wrong kinds, other JSON, and no JSON."""
