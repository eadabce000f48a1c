"""Each check notices what it is for: facts that are right pass, and doctored once for each thing that must never be, exactly that is found."""

import copy
from collections.abc import Callable
from typing import Any

import pytest

from tests.chaos.book import Group, Stop
from tests.chaos.truth import CHECKS, EVENTUAL, Facts, group_sum, judge, moves

REFUND, OPERATION, MADE, INTENT, HASH = "rf_1", "op_1", "re_1", "pi_1", "a" * 64
KEY = f"refunds-refund-test-{OPERATION}"
LEG_KEY = "refunds-reverse_transfer-test-leg_1"
MINUTE = "2026-09-01T10:00:{:02d}Z"
AT = 1_788_256_800.0  # the first second of that minute


def _entry(version: int, kind: str, **data: Any) -> dict[str, Any]:
    return {"seq": version, "refund_version": version, "type": kind, "at": MINUTE.format(version), "data": data}


def _moved(version: int, before: str, after: str, **more: Any) -> dict[str, Any]:
    return _entry(version, "status_changed", **{"from": before, "to": after}, **more)


def right() -> Facts:
    """One refund of 3000 of a payment of 5000: consented, approved by a reviewer, sent once, succeeded; and 1000 that somebody else refunded."""
    metadata = {"refunds_operation": OPERATION, "refunds_refund": REFUND, "refunds_terms": HASH}
    decision = {
        "revision": 1,
        "verdict": "approve",
        "terms_hash": HASH,
        "recorded_at": MINUTE.format(3),
        "person": "p_1",
        "recorded_by": {"id": "p_1"},
    }
    operation = {
        "id": OPERATION,
        "kind": "refund",
        "revision": 1,
        "amount": 3000,
        "refund_id": MADE,
        "attempts": [{"opened_at": MINUTE.format(6), "send_by": MINUTE.format(8)}],
    }
    view = {
        "id": REFUND,
        "status": "succeeded",
        "final": True,
        "version": 8,
        "revision": 1,
        "amount": 3000,
        "code": None,
        "detail": None,
        "answer_by": None,
        "next_step": None,
        "deadlines": {"next_due_at": None},
        "policy": {"needs": {"consent": True, "review": {"role": "reviewer", "people": 1}}},
        "request": {"requester": {"id": "p_shop"}},
        "revisions": [{"revision": 1, "terms_hash": HASH}],
        "decisions": [decision | {"id": "dc_1", "kind": "consent"}, decision | {"id": "dc_2", "kind": "review"}],
        "processor": {"operations": [operation]},
    }
    ledger = [
        _entry(1, "received"),
        _moved(2, "received", "classified"),
        _moved(3, "classified", "approved"),
        _entry(4, "intent", operation=OPERATION, consumed=["dc_1", "dc_2"]),
        _moved(5, "approved", "submitting"),
        _entry(6, "attempt_opened"),
        _entry(7, "receipt"),
        _moved(8, "submitting", "succeeded"),
    ]
    params = {"payment_intent": INTENT, "amount": "3000", "metadata": metadata}
    return Facts(
        intent=INTENT,
        captured=5000,
        marks=frozenset(),
        accepted=(REFUND,),
        creates=[{"key": KEY, "params": params, "answered": 200, "made": MADE, "replayed": False}],
        cancels=[],
        refunds=[
            {"id": MADE, "amount": 3000, "status": "succeeded", "metadata": metadata},
            {"id": "re_theirs", "amount": 1000, "status": "succeeded", "metadata": {}},
        ],
        views={REFUND: view},
        ledgers={REFUND: ledger},
        external={"re_theirs": 1000},
        posts={KEY: [AT + 7]},
        stops=(Stop(AT + 20, AT + 30, frozenset()),),
    )


def _view(facts: Facts) -> dict[str, Any]:
    return facts.views[REFUND]


def _stands(facts: Facts, status: str, **more: Any) -> None:
    """The refund is recorded as so, by moves that are in order."""
    _view(facts).update(status=status, final=status in ("failed", "denied"), **more)
    facts.ledgers[REFUND][-1] = _moved(8, "submitting", status)


def _goes_on(facts: Facts, *moves: dict[str, Any]) -> None:
    """After all that, the refund moved on."""
    facts.ledgers[REFUND] += moves
    _view(facts).update(version=len(facts.ledgers[REFUND]), status=moves[-1]["data"]["to"])


# --- one thing wrong at a time ---------------------------------------------------------------------------------------------------------------


def _more_than_captured(facts: Facts) -> None:
    facts.refunds[1]["amount"] = facts.external["re_theirs"] = 2001


def _more_asked_for_than_left(facts: Facts) -> None:
    facts.creates.append(facts.creates[0] | {"answered": 400, "made": None})


def _one_operation_two_refunds(facts: Facts) -> None:
    facts.refunds[1]["metadata"] = {"refunds_operation": OPERATION}


def _two_operations_of_one_refund(facts: Facts) -> None:
    second = facts.refunds[0] | {"id": "re_2", "amount": 1, "metadata": {"refunds_refund": REFUND, "refunds_operation": "op_2"}}
    facts.refunds.append(second)
    _view(facts)["processor"]["operations"].append(
        _view(facts)["processor"]["operations"][0] | {"id": "op_2", "refund_id": "re_2", "attempts": []}
    )


def _with_a_leg(facts: Facts) -> dict[str, Any]:
    """4000 of the 5000 went to a seller, and 2400 of it were taken back, 3000 being refunded."""
    leg = {
        "id": "leg_1",
        "kind": "reverse_transfer",
        "operation": OPERATION,
        "target": "tr_1",
        "amount": 2400,
        "state": "done",
        "reversal_id": "trr_1",
        "attempts": [{"opened_at": MINUTE.format(9), "send_by": MINUTE.format(11)}],
    }
    _view(facts)["processor"]["legs"] = [leg]
    facts.targets = {"tr_1": 4000}
    facts.returned = [{"id": "trr_1", "amount": 2400, "transfer": "tr_1", "metadata": {"refunds_operation": "leg_1"}}]
    facts.leg_requests = [{"key": LEG_KEY, "params": {"amount": "2400"}}]
    facts.posts[LEG_KEY] = [AT + 10]
    return leg


def _a_leg_twice(facts: Facts) -> None:
    _with_a_leg(facts)
    facts.returned.append(facts.returned[0] | {"id": "trr_2"})


def _a_leg_of_nobody(facts: Facts) -> None:
    _with_a_leg(facts)
    facts.returned.append({"id": "trr_2", "metadata": {"refunds_operation": "leg_2"}})


def _a_leg_done_and_not_made(facts: Facts) -> None:
    _with_a_leg(facts)["reversal_id"] = "trr_2"


def _a_leg_made_with_another_amount(facts: Facts) -> None:
    _with_a_leg(facts)
    facts.returned[0]["amount"] = 2399


def _a_leg_made_of_another_transfer(facts: Facts) -> None:
    _with_a_leg(facts)
    facts.returned[0]["transfer"] = "tr_2"


def _a_leg_that_is_not_the_part(facts: Facts) -> None:
    _with_a_leg(facts)["amount"] = facts.returned[0]["amount"] = 2402


def _a_leg_that_was_made_after_all(facts: Facts) -> None:
    _with_a_leg(facts)["state"] = "not_done"


def _a_leg_left_out(facts: Facts) -> None:
    _with_a_leg(facts)["state"] = "void"
    facts.returned = []


def _one_receipt_for_two_legs(facts: Facts) -> None:
    leg = _with_a_leg(facts)
    _view(facts)["processor"]["legs"].append(leg | {"id": "leg_2", "attempts": []})


def _one_key_of_a_leg_two_contents(facts: Facts) -> None:
    _with_a_leg(facts)
    facts.leg_requests.append({"key": LEG_KEY, "params": {"amount": "2401"}})


def _a_leg_sent_while_stopped(facts: Facts) -> None:
    _with_a_leg(facts)
    facts.stops = (Stop(AT + 9.5, AT + 12, frozenset()),)


def _a_leg_sent_after_it_lapsed(facts: Facts) -> None:
    _with_a_leg(facts)
    facts.posts[LEG_KEY] = [AT + 15]


def _one_key_two_contents(facts: Facts) -> None:
    metadata = facts.creates[0]["params"]["metadata"] | {"more": "1"}
    facts.creates.append(facts.creates[0] | {"params": facts.creates[0]["params"] | {"metadata": metadata}})


def _a_request_of_nobody(facts: Facts) -> None:
    facts.creates.append(facts.creates[0] | {"key": "refunds-refund-test-op_9"})


def _another_amount_than_approved(facts: Facts) -> None:
    facts.creates[0]["params"]["amount"] = "3001"


def _an_approval_of_other_terms(facts: Facts) -> None:
    _view(facts)["decisions"][1]["terms_hash"] = "b" * 64


def _a_denial_consumed(facts: Facts) -> None:
    _view(facts)["decisions"][1]["verdict"] = "deny"


def _nothing_consumed(facts: Facts) -> None:
    facts.ledgers[REFUND][3]["data"]["consumed"] = []


def _approved_afterwards(facts: Facts) -> None:
    _view(facts)["decisions"][1]["recorded_at"] = MINUTE.format(5)


def _no_consent(facts: Facts) -> None:
    facts.ledgers[REFUND][3]["data"]["consumed"] = ["dc_2"]


def _one_person_of_two(facts: Facts) -> None:
    _view(facts)["policy"]["needs"]["review"]["people"] = 2


def _approved_by_whoever_asked(facts: Facts) -> None:
    _view(facts)["decisions"][1]["recorded_by"] = {"id": "p_shop"}


def _two_intents(facts: Facts) -> None:
    facts.ledgers[REFUND][0] = facts.ledgers[REFUND][3] | {"refund_version": 1}


def _accepted_and_gone(facts: Facts) -> None:
    facts.accepted = (REFUND, "rf_2")


def _stuck(facts: Facts) -> None:
    facts.ledgers[REFUND] = facts.ledgers[REFUND][:5]
    _view(facts).update(status="submitting", final=False, version=5)
    _nothing_there(facts)


def _waits_for_ever(facts: Facts) -> None:
    _stands(facts, "pending", next_step="the processor to finish")
    facts.refunds[0]["status"] = "pending"


def _an_entry_is_missing(facts: Facts) -> None:
    del facts.ledgers[REFUND][5]


def _an_entry_is_there_twice(facts: Facts) -> None:
    facts.ledgers[REFUND].append(facts.ledgers[REFUND][-1])


def _a_move_from_elsewhere(facts: Facts) -> None:
    facts.ledgers[REFUND][4]["data"]["from"] = "held"


def _no_such_move(facts: Facts) -> None:
    facts.ledgers[REFUND][1:3] = [_moved(2, "received", "approved"), facts.ledgers[REFUND][0] | {"refund_version": 3}]


def _it_stands_elsewhere(facts: Facts) -> None:
    facts.ledgers[REFUND][-1]["type"] = "note"
    facts.ledgers[REFUND][-1]["data"] = {}


def _nothing_there(facts: Facts) -> None:
    del facts.refunds[0]
    _view(facts)["processor"]["operations"][0]["refund_id"] = None


def _taken_for_succeeded(facts: Facts) -> None:
    del facts.refunds[0]


def _taken_for_failed(facts: Facts) -> None:
    _stands(facts, "failed")


def _taken_for_failed_at_first(facts: Facts) -> None:
    facts.ledgers[REFUND][-1] = _moved(8, "submitting", "failed")
    facts.ledgers[REFUND].append(_moved(9, "failed", "succeeded"))
    _view(facts)["version"] = 9


def _taken_for_failed_later(facts: Facts) -> None:
    facts.ledgers[REFUND].append(_moved(9, "succeeded", "failed"))
    _view(facts).update(version=9, status="failed")


def _refused_for_our_key(facts: Facts) -> None:
    _nothing_there(facts)
    _stands(facts, "failed", code="KEY_REFUSED")
    facts.creates[0]["answered"] = 401


def _another_is_sent_past_it(facts: Facts) -> None:
    facts.ledgers[REFUND][7] = _moved(8, "submitting", "parked", code="RESPONSE_MISMATCH")
    _goes_on(facts, _moved(10, "parked", "succeeded") | {"refund_version": 9})
    facts.ledgers["rf_2"] = [_entry(9, "attempt_opened")]


def _another_is_sent_past_one_that_is_still_parked(facts: Facts) -> None:
    facts.ledgers[REFUND][7] = _entry(8, "parked_for_another_reason", code="REFUNDED_TWICE")
    facts.ledgers[REFUND][6] = _moved(7, "submitting", "succeeded")
    facts.ledgers["rf_2"] = [_entry(9, "attempt_opened")]


def _settled_and_parked_again(facts: Facts) -> None:
    different = {"code": "RESPONSE_MISMATCH"}
    facts.ledgers[REFUND][7] = _moved(8, "submitting", "parked", **different)
    again = (_moved(9, "parked", "succeeded"), _moved(10, "succeeded", "parked", **different), _moved(11, "parked", "succeeded"))
    _goes_on(facts, *again)


def _failed_there_succeeded_here(facts: Facts) -> None:
    facts.refunds[0]["status"] = "failed"


def _another_id_recorded(facts: Facts) -> None:
    _view(facts)["processor"]["operations"][0]["refund_id"] = "re_other"


def _ours_and_unknown(facts: Facts) -> None:
    facts.refunds[1]["metadata"] = {"refunds_refund": "rf_9", "refunds_operation": "op_9"}


def _made_past_us_and_unknown(facts: Facts) -> None:
    facts.external.clear()


def _made_past_us_with_another_amount(facts: Facts) -> None:
    facts.external["re_theirs"] = 999


def _sent_after_a_no(facts: Facts) -> None:
    facts.told_no[REFUND] = "the shop withdrew it"


def _sent_while_stopped(facts: Facts) -> None:
    facts.stops = (Stop(AT + 6.5, AT + 9, frozenset()),)


def _opened_while_stopped(facts: Facts) -> None:
    facts.stops = (Stop(AT + 5.5, AT + 6.5, frozenset()),)


def _opened_while_halted(facts: Facts) -> None:
    facts.stops = (Stop(AT + 5.5, AT + 6.5, None),)


def _sent_after_it_lapsed(facts: Facts) -> None:
    facts.posts[KEY] = [AT + 12]


def _more_calls_than_attempts(facts: Facts) -> None:
    facts.posts[KEY] = [AT + 7, AT + 7.5]


WRONG: dict[str, tuple[Callable[[Facts], None], ...]] = {
    "over_refunded": (_more_than_captured, _more_asked_for_than_left),
    "leg_twice": (
        *(_a_leg_twice, _a_leg_of_nobody, _a_leg_done_and_not_made, _a_leg_made_with_another_amount, _a_leg_made_of_another_transfer),
        *(_a_leg_that_is_not_the_part, _a_leg_that_was_made_after_all, _a_leg_left_out, _one_receipt_for_two_legs),
        _one_key_of_a_leg_two_contents,
    ),
    "refunded_twice": (_one_operation_two_refunds, _two_operations_of_one_refund, _one_key_two_contents),
    "unapproved": (
        *(_a_request_of_nobody, _another_amount_than_approved, _an_approval_of_other_terms, _a_denial_consumed, _nothing_consumed),
        *(_approved_afterwards, _no_consent, _one_person_of_two, _approved_by_whoever_asked, _two_intents),
    ),
    "lost": (_accepted_and_gone, _stuck, _waits_for_ever),
    "record_broken": (_an_entry_is_missing, _an_entry_is_there_twice, _a_move_from_elsewhere, _no_such_move, _it_stands_elsewhere),
    "failed_without_answer": (_refused_for_our_key,),
    "sent_past_a_difference": (_another_is_sent_past_it, _another_is_sent_past_one_that_is_still_parked),
    "undone": (_settled_and_parked_again,),
    "guessed": (_taken_for_succeeded, _taken_for_failed_at_first, _taken_for_failed_later),
    "differs": (_taken_for_failed, _failed_there_succeeded_here, _another_id_recorded, _ours_and_unknown),
    "unseen": (_made_past_us_and_unknown, _made_past_us_with_another_amount),
    "sent_after_no": (_sent_after_a_no,),
    "sent_while_stopped": (_sent_while_stopped, _opened_while_stopped, _opened_while_halted, _a_leg_sent_while_stopped),
    "sent_too_late": (_sent_after_it_lapsed, _more_calls_than_attempts, _a_leg_sent_after_it_lapsed),
}
ALSO: dict[Callable[[Facts], None], set[str]] = {
    _nothing_there: {"guessed"},
    _one_operation_two_refunds: {"unseen"},
    _two_operations_of_one_refund: {"unapproved", "differs"},
    _taken_for_succeeded: {"differs"},
    _taken_for_failed: {"failed_without_answer"},
    _taken_for_failed_at_first: {"failed_without_answer"},
    _taken_for_failed_later: {"differs", "failed_without_answer"},
    _it_stands_elsewhere: {"guessed"},
}
"""What a doctored fact rightly sets off besides."""


def test_facts_that_are_right_pass() -> None:
    assert judge(right()) == []


def test_a_leg_that_is_right_passes() -> None:
    facts = right()
    _with_a_leg(facts)

    assert judge(facts) == []


def _shown_group(**sums: int) -> dict[str, Any]:
    """Of 9000 asked for, 5000 went back, 3000 wait for a decision, and 1000 were denied."""
    statuses = {"rf_1": ("succeeded", 5000), "rf_2": ("awaiting_review", 3000), "rf_3": ("denied", 1000)}
    return {
        "allocation": {"parts": [{"amount": amount} for _, amount in statuses.values()]},
        "sums": [{"asked": 9000, "returned": 5000, "released": 0, "under_way": 3000, "by_hand": 0, "not_given": 1000} | sums],
        "refunds": [{"id": refund, "status": status, "amount": amount} for refund, (status, amount) in statuses.items()],
    }


@pytest.mark.parametrize(
    ("shown", "out", "refunds", "wrong"),
    [
        (_shown_group(), 5000, 3, 0),
        (_shown_group(), 4000, 3, 1),
        (_shown_group(returned=6000, not_given=0), 5000, 3, 1),
        (_shown_group(by_hand=1000, not_given=0), 5000, 3, 1),
        (_shown_group(asked=8000), 5000, 3, 1),
        (_shown_group(), 5000, 2, 1),
    ],
)
def test_the_sums_of_a_group_are_what_became_of_it(shown: dict[str, Any], out: int, refunds: int, wrong: int) -> None:
    group = Group("rg_1", "key", 9000, ("pi_1", "pi_2", "card-1"))

    assert len(list(group_sum(group, shown, out, ["rf_1", "rf_2", "rf_3"][:refunds]))) == wrong


def test_a_call_whose_attempt_was_open_before_the_halt_may_leave_and_what_the_processor_refused_has_failed() -> None:
    halted = right()
    halted.stops = (Stop(AT + 6.5, AT + 9, None),)
    assert judge(halted) == []

    refused = right()
    _nothing_there(refused)
    _stands(refused, "failed")
    refused.creates[0]["answered"] = 402
    assert judge(refused) == []


def test_every_check_has_facts_that_it_must_notice() -> None:
    assert set(WRONG) == set(CHECKS)
    assert set(CHECKS) >= EVENTUAL


@pytest.mark.parametrize(("check", "doctor"), [(check, doctor) for check, doctors in WRONG.items() for doctor in doctors])
def test_one_thing_that_must_never_be_is_found(check: str, doctor: Callable[[Facts], None]) -> None:
    facts = copy.deepcopy(right())
    doctor(facts)

    found = {violation.check for violation in judge(facts)}

    assert check in found
    assert found - {check} <= ALSO.get(doctor, set()), [violation for violation in judge(facts) if violation.check != check]


def test_the_moves_are_those_that_the_docs_draw() -> None:
    assert ("submitting", "succeeded") in moves()
    assert ("parked", "failed") in moves()
    assert ("denied", "approved") not in moves()
    assert not any(before == "released" for before, _ in moves())
