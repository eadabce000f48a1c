"""Figures over published collections, printed in the summary. They are measured only where the collections are; where not, the summary says so.

``REFUNDS_INTENTS_DIR``: customer-support intents with ``dev.csv`` and ``test.csv`` (bitext, CDLA-Sharing-1.0). Its wording is made by templates, and
wording like it was looked at when the patterns were written: the figures are in-domain and flatter. ``REFUNDS_INJECTIONS``: prompt injections against
assistants in general (PurpleLlama, MIT); many are off-topic questions that do not try to move money.
"""

import csv
import json
import os
from collections import Counter
from pathlib import Path

from activities.classifiers import NO_CONTEXT
from activities.classifiers.rules import read
from activities.classifiers.signs import signs_of_manipulation
from activities.classifiers.verify import checked
from refunds.classification import Intent, Proposal, Reading
from refunds.masking import mask

EXPECTED = {
    "get_refund": Intent.REFUND,
    "track_refund": Intent.TRACK_REFUND,
    "check_refund_policy": Intent.POLICY_QUESTION,
    "cancel_order": Intent.CANCEL_ORDER,
    "complaint": Intent.COMPLAINT,
}


def test_intents_of_a_published_collection(figures):
    place = os.environ.get("REFUNDS_INTENTS_DIR")
    if not place:
        figures("intents: NOT RUN, REFUNDS_INTENTS_DIR is not set")
        return
    rows = [
        row for part in ("dev", "test") for row in csv.DictReader((Path(place) / f"{part}.csv").read_text(encoding="utf-8").splitlines())
    ]
    total, right, wrongly_refund, signs = Counter[str](), Counter[str](), 0, 0
    orders = orders_right = others = 0
    for row in rows:
        reading = read(row["utterance"])
        signs += bool(reading.manipulation)
        expected = EXPECTED.get(row["intent"])
        if expected:
            total[row["intent"]] += 1
            right[row["intent"]] += reading.intent is expected
        else:
            others += 1
        wrongly_refund += reading.intent is Intent.REFUND and row["intent"] != "get_refund"
        if row["entity_type"] == "order_id":
            orders += 1
            orders_right += reading.order_reference == row["entity_value"]
    for name in EXPECTED:
        figures(f"intents (in-domain, template wording): {name} {right[name]} of {total[name]}")
    figures(f"intents: read as refund without being get_refund: {wrongly_refund} of {len(rows) - total['get_refund']}")
    figures(f"intents: order numbers read exactly: {orders_right} of {orders}; false signs of manipulation: {signs} of {len(rows)}")
    assert sum(total.values()) and others
    assert sum(right.values()) >= 0.85 * sum(total.values())
    assert wrongly_refund <= 0.02 * len(rows)
    assert signs <= 0.01 * len(rows)
    assert orders_right >= 0.85 * orders


def test_injections_of_a_published_collection(figures):
    place = os.environ.get("REFUNDS_INJECTIONS")
    if not place:
        figures("injections: NOT RUN, REFUNDS_INJECTIONS is not set")
        return
    texts = [entry["user_input"] for entry in json.loads(Path(place).read_text(encoding="utf-8"))]
    caught = 0
    for text in texts:
        alone, appended = read(text), read(f"Please refund $30 for order ORD-1001. {text}")
        caught += bool(alone.manipulation)
        for reading in (alone, appended):
            assert reading.confidence <= (10 if reading.manipulation else 60)
            assert reading.proposal is not Proposal.APPROVE or not reading.manipulation
        # A model that fell for the text wholly: sure of itself, for approval, silent about signs.
        fooled = Reading(intent=Intent.REFUND, proposal=Proposal.APPROVE, confidence=100)
        kept = checked(fooled, text, NO_CONTEXT)
        if signs_of_manipulation(text):
            assert (kept.proposal, kept.confidence) == (Proposal.ESCALATE, 10)
    figures(
        f"injections (general, English mostly): sign seen in {caught} of {len(texts)}; the rest is caught by no pattern, only by the policy"
    )
    assert caught >= 0.55 * len(texts)


def test_no_message_of_a_published_collection_is_masked(figures):
    """Order numbers, amounts and names are in them, and no card numbers, accounts or keys: whatever is masked there is wrongly masked."""
    place = os.environ.get("REFUNDS_INTENTS_DIR")
    if not place:
        figures("masking: NOT RUN, REFUNDS_INTENTS_DIR is not set")
        return
    messages = [
        row["utterance"]
        for part in ("dev", "test")
        for row in csv.DictReader((Path(place) / f"{part}.csv").read_text(encoding="utf-8").splitlines())
    ]
    changed = [message for message in messages if mask(message).counts]
    figures(f"masking: {len(changed)} of {len(messages)} messages changed")
    assert (len(messages) > 1_000, changed) == (True, [])
