"""What must be true afterwards, of one payment at a time: pure functions over what was collected, so that each can be shown to notice what it is for.

A check yields a sentence for everything that is wrong. ``tests/chaos/test_truth.py`` doctors the facts once for each.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from refunds.clock import parse_rfc3339
from tests.chaos.book import Group, Stop

STATUS_PAGE = Path(__file__).parents[2] / "docs" / "status.md"
OUT = frozenset({"succeeded", "pending", "requires_action"})
"""States of a refund at the processor in which the money is out or on its way."""
NOT_OUT = frozenset({"failed", "canceled"})
SETTLED_BY_PEOPLE = "SETTLED_NOT_REFUNDED"
DIFFERENT = frozenset({"RESPONSE_MISMATCH", "REFUNDED_TWICE"})
"""Codes of a parked refund that is not what was approved."""
REFUSALS = frozenset({400, 402, 404})
"""Answers that say something about the refund; 401 and 403 speak of our key, 409 and 429 of the moment."""
WAITING = frozenset({"awaiting_consent", "awaiting_review", "pending"})
"""Statuses in which a refund may be when everything is over, if it says until when."""
LATE_S = 1.0

Json = dict[str, Any]


@dataclass(frozen=True)
class Violation:
    """Something that must never be, and where it was seen."""

    check: str
    where: str
    what: str


@dataclass
class Facts:
    """Everything about one payment. ``creates``, ``cancels`` and ``refunds`` are the sandbox's truth; ``views`` and ``ledgers`` are the product's, by refund."""

    intent: str
    captured: int
    marks: frozenset[str]
    accepted: tuple[str, ...]
    creates: list[Json]
    cancels: list[Json]
    refunds: list[Json]
    views: dict[str, Json]
    ledgers: dict[str, list[Json]]
    external: dict[str, int] = field(default_factory=dict[str, int])
    """Refunds of others that the product knows of, with their amounts, by the processor's id."""
    posts: dict[str, list[float]] = field(default_factory=dict[str, list[float]])
    """When requests that move money left the worker, by idempotency key."""
    stops: tuple[Stop, ...] = ()
    told_no: dict[str, str] = field(default_factory=dict[str, str])
    returned: list[Json] = field(default_factory=list[Json])
    """Reversals of transfers and refunds of fees, by the sandbox's truth."""
    leg_requests: list[Json] = field(default_factory=list[Json])
    targets: dict[str, int] = field(default_factory=dict[str, int])
    """The transfers of the payment, with their amounts."""
    fee: int = 0

    def operations(self) -> Iterator[tuple[Json, Json]]:
        """Each view with each of its operations."""
        for view in self.views.values():
            for operation in view["processor"]["operations"]:
                yield view, operation

    def legs(self) -> Iterator[tuple[Json, Json]]:
        """Each view with each of its legs."""
        for view in self.views.values():
            for leg in view["processor"].get("legs", ()):
                yield view, leg

    def sendings(self) -> Iterator[tuple[Json, str, list[Json]]]:
        """Everything that is sent, refunds and legs: its view, its key, its attempts."""
        for view, one in (*self.operations(), *self.legs()):
            yield view, key_of(one["kind"], one["id"]), one["attempts"]

    def made_for(self, operation: str) -> list[Json]:
        """The processor's refunds that carry the operation's id."""
        return [made for made in self.refunds if made["metadata"].get("refunds_operation") == operation]

    def made_for_refund(self, refund: str) -> list[Json]:
        """The processor's refunds that carry the refund's id."""
        return [made for made in self.refunds if made["metadata"].get("refunds_refund") == refund]


def over_refunded(facts: Facts) -> Iterator[str]:
    """The refunds of a payment never exceed what was captured; nor does the product ask for more than is left, where nobody else took any."""
    out = sum(made["amount"] for made in facts.refunds if made["status"] in OUT)
    if out > facts.captured:
        yield f"{out} of {facts.captured} went back"
    promised = sum(
        view["amount"] or 0 for view in facts.views.values() if view["status"] in ("succeeded", "pending", "approved", "submitting")
    )
    if promised > facts.captured:
        yield f"{promised} of {facts.captured} are recorded as refunded"
    if not facts.marks:
        for request in facts.creates:
            if request["answered"] == 400:
                yield f"a request was refused as wrong: {request['params']}"


def refunded_twice(facts: Facts) -> Iterator[str]:
    """An operation is at most one refund, by one key with one content; a refund of ours is at most one that did not fail."""
    counted = Counter(made["metadata"].get("refunds_operation") for made in facts.refunds)
    for operation, count in counted.items():
        if operation is not None and count > 1:
            yield f"the operation {operation} is {count} refunds"
    for refund in facts.accepted:
        alive = [made["id"] for made in facts.made_for_refund(refund) if made["status"] in OUT]
        if len(alive) > 1:
            yield f"{refund} is {alive}"
    contents: dict[str, Json] = {}
    for request in facts.creates:
        if contents.setdefault(request["key"], request["params"]) != request["params"]:
            yield f"the key {request['key']} was sent with another content"


def leg_twice(facts: Facts) -> Iterator[str]:
    """A leg is made at most once, by one key with one content; one that is done was made exactly as approved, and nothing of ours was made that is no leg."""
    counted = Counter(made["metadata"].get("refunds_operation") for made in facts.returned)
    legs = {leg["id"]: (view, leg) for view, leg in facts.legs()}
    for leg, count in counted.items():
        if leg is not None and count > 1:
            yield f"the leg {leg} was made {count} times"
        if leg is not None and leg not in legs:
            yield f"{leg} was made, and is no leg of any refund"
    contents: dict[str, Json] = {}
    for request in facts.leg_requests:
        if contents.setdefault(request["key"], request["params"]) != request["params"]:
            yield f"the key {request['key']} was sent with another content"
    receipts = Counter(leg["reversal_id"] for _, leg in legs.values() if leg["state"] == "done")
    yield from (f"{receipt} was taken for {count} legs" for receipt, count in receipts.items() if count > 1)
    for view, leg in legs.values():
        yield from _leg_not_as_it_should_be(facts, view, leg, made=bool(counted[leg["id"]]))


def _leg_not_as_it_should_be(facts: Facts, view: Json, leg: Json, *, made: bool) -> Iterator[str]:
    name = f"the leg {leg['id']} ({leg['kind']} {leg['amount']})"
    if leg["state"] == "done":
        receipt = next((one for one in facts.returned if one["id"] == leg["reversal_id"]), None)
        if receipt is None:
            yield f"{name} is done and was not made"
        elif (receipt["amount"], receipt.get("transfer", receipt.get("fee"))) != (leg["amount"], leg["target"]):
            yield f"{name} is done, and what was made is {receipt['amount']} of {receipt.get('transfer', receipt.get('fee'))}"
    elif leg["state"] in ("void", "not_done") and made:
        yield f"{name} is {leg['state']} and was made"
    if leg["state"] == "void" and view["status"] in OUT and leg["operation"] == view["processor"]["operations"][-1]["id"]:
        yield f"{name} is void, and its refund {view['status']}"
    whole = facts.fee if leg["kind"] == "refund_fee" else facts.targets.get(leg["target"], 0)
    refunded = next(operation["amount"] for operation in view["processor"]["operations"] if operation["id"] == leg["operation"])
    if abs(leg["amount"] * facts.captured - whole * refunded) >= facts.captured:
        yield f"{name} of {whole} is not the part that {refunded} is of {facts.captured}"


def unapproved(facts: Facts) -> Iterator[str]:
    """Every request that moves money belongs to an operation of ours whose exact terms were approved by everybody who had to, before it was sent."""
    by_key = {key_of(operation["kind"], operation["id"]): (view, operation) for view, operation in facts.operations()}
    for request in [*facts.creates, *facts.cancels]:
        if request["key"] not in by_key:
            yield f"a request with the key {request['key']} belongs to no operation that is recorded"
            continue
        view, operation = by_key[request["key"]]
        yield from _unapproved(facts, view, operation, request)


def _unapproved(facts: Facts, view: Json, operation: Json, request: Json) -> Iterator[str]:
    where = f"{view['id']} revision {operation['revision']}"
    params = request["params"]
    terms_hash = next((r["terms_hash"] for r in view["revisions"] if r["revision"] == operation["revision"]), None)
    if operation["kind"] == "refund":
        metadata = params.get("metadata", {})
        sent = (int(params.get("amount", -1)), params.get("payment_intent"), metadata.get("refunds_terms"), metadata.get("refunds_refund"))
        if sent != (operation["amount"], facts.intent, terms_hash, view["id"]):
            yield f"{where}: what was sent is not what was approved: {params}"
    intents = [entry for entry in facts.ledgers[view["id"]] if entry["type"] == "intent" and entry["data"]["operation"] == operation["id"]]
    if len(intents) != 1:
        yield f"{where}: {len(intents)} intents are recorded for {operation['id']}"
        return
    decisions = {decision["id"]: decision for decision in view["decisions"]}
    consumed = [decisions[each] for each in intents[0]["data"]["consumed"] if each in decisions]
    approving = [d for d in consumed if (d["verdict"], d["terms_hash"], d["revision"]) == ("approve", terms_hash, operation["revision"])]
    if len(approving) != len(intents[0]["data"]["consumed"]) or not approving:
        yield f"{where}: what was consumed does not approve these terms"
    if any(parse_rfc3339(d["recorded_at"]) > parse_rfc3339(intents[0]["at"]) for d in approving):
        yield f"{where}: it was approved after it was sent"
    if operation["revision"] == view["revision"] and view["policy"] is not None:
        yield from _unmet(where, view["policy"]["needs"], approving, view["request"]["requester"]["id"])


def _unmet(where: str, needs: Json, approving: list[Json], requester: str) -> Iterator[str]:
    kinds = Counter(decision["kind"] for decision in approving)
    if needs["consent"] and not kinds["consent"]:
        yield f"{where}: nobody consented"
    if needs["review"] is None:
        if not kinds["policy"] and not kinds["review"]:
            yield f"{where}: neither the policy nor a person approved it"
        return
    persons = {decision["person"] for decision in approving if decision["kind"] == "review"}
    if len(persons) < needs["review"]["people"]:
        yield f"{where}: {len(persons)} of {needs['review']['people']} persons approved it"
    if any((decision["recorded_by"] or {}).get("id") == requester for decision in approving if decision["kind"] == "review"):
        yield f"{where}: whoever asked for it approved it"


def lost(facts: Facts) -> Iterator[str]:
    """What was accepted exists, and is final or says what it waits for and until when."""
    for refund in facts.accepted:
        view = facts.views.get(refund)
        if view is None:
            yield f"{refund} was accepted and does not exist"
        elif not view["final"]:
            until = view["answer_by"] or view["deadlines"]["next_due_at"]
            if view["status"] not in WAITING:
                yield f"{refund} is still {view['status']} ({view['code']}: {view['detail']})"
            elif not view["next_step"] or not until:
                yield f"{refund} is {view['status']} and does not say what it waits for, or until when"


def record_broken(facts: Facts) -> Iterator[str]:
    """Each refund's entries are gapless, its moves follow from each other by the table of the docs, and lead to where it stands."""
    for refund, view in facts.views.items():
        entries = facts.ledgers.get(refund, [])
        versions = [entry["refund_version"] for entry in entries]
        if versions != list(range(1, view["version"] + 1)):
            yield f"{refund}: entries {versions} of version {view['version']}"
        status = "received"
        for entry in entries:
            if entry["type"] != "status_changed":
                continue
            move = entry["data"]["from"], entry["data"]["to"]
            if move[0] != status:
                yield f"{refund}: it moved from {move[0]} while it was {status}"
            if move not in moves():
                yield f"{refund}: {move[0]} to {move[1]} is no move"
            status = move[1]
        if status != view["status"]:
            yield f"{refund}: the record leads to {status}, and it is {view['status']}"


def guessed(facts: Facts) -> Iterator[str]:
    """A refund is failed only when the processor said no or two persons said that nothing was sent, and succeeded only when it is there."""
    moved = bool(facts.marks & {"fails_later"})
    for refund in facts.views:
        for entry in facts.ledgers.get(refund, []):
            if entry["type"] != "status_changed":
                continue
            before, after = entry["data"]["from"], entry["data"]["to"]
            if (before, after) == ("failed", "succeeded"):
                yield f"{refund} was taken for failed and had succeeded"
            if (
                (before, after) == ("succeeded", "failed")
                and not moved
                and not any(m["status"] in NOT_OUT for m in facts.made_for_refund(refund))
            ):
                yield f"{refund} was taken for succeeded and had failed"
            if after == "succeeded" and not facts.made_for_refund(refund):
                yield f"{refund} was taken for succeeded and is not at the processor"


def failed_without_answer(facts: Facts) -> Iterator[str]:
    """Nothing is taken for refused unless the processor refused it: not for a missing answer, nor for what it says about our key."""
    answers = {request["key"]: set[Any]() for request in [*facts.creates, *facts.cancels]}
    for request in [*facts.creates, *facts.cancels]:
        answers[request["key"]].add(request["answered"])
    for refund, view in facts.views.items():
        for entry in facts.ledgers.get(refund, []):
            data = entry["data"]
            if (
                entry["type"] != "status_changed"
                or data["to"] != "failed"
                or data.get("code") == SETTLED_BY_PEOPLE
                or data.get("processor_refund")
            ):
                continue
            said = {
                answer
                for operation in view["processor"]["operations"]
                for answer in answers.get(key_of(operation["kind"], operation["id"]), set())
            }
            if not said & REFUSALS:
                yield f"{refund} failed ({data.get('code')}), and the processor said {sorted(map(str, said)) or 'nothing'}"


def sent_past_a_difference(facts: Facts) -> Iterator[str]:
    """While one refund of a payment is not what was approved, and nobody has said what it is, nothing more is sent for that payment."""
    opened = [(entry["seq"], refund) for refund, entries in facts.ledgers.items() for entry in entries if entry["type"] == "attempt_opened"]
    for refund, entries in facts.ledgers.items():
        since: int | None = None
        for entry in [*entries, {"seq": None, "type": "status_changed", "data": {}}]:
            if since is not None and entry["type"] == "status_changed":
                late = [other for seq, other in opened if other != refund and since < seq and (entry["seq"] is None or seq < entry["seq"])]
                since = None
                if late:
                    yield f"{late[0]} was sent while {refund} was not what had been approved"
            if entry["type"] in ("status_changed", "parked_for_another_reason") and entry["data"].get("code") in DIFFERENT:
                since = entry["seq"]


def undone(facts: Facts) -> Iterator[str]:
    """What a person said of a difference stays: no reading of the same parks it again."""
    for refund, entries in facts.ledgers.items():
        settled = False
        for entry in entries:
            if entry["type"] != "status_changed":
                continue
            parked = entry["data"]["to"] == "parked"
            if settled and parked and entry["data"].get("code") == "RESPONSE_MISMATCH":
                yield f"{refund} was settled by a person and parked again"
            settled = settled or (entry["data"]["from"] == "parked" and not parked)


def differs(facts: Facts) -> Iterator[str]:
    """What is recorded is what is true at the processor: status, amount, ids, and nothing there that nothing here knows."""
    for refund, view in facts.views.items():
        made = facts.made_for_refund(refund)
        out = [each for each in made if each["status"] in OUT]
        done = [each for each in made if each["status"] == "succeeded"]
        cancelled = any(request["answered"] == 200 for request in facts.cancels)
        expected = {
            "succeeded": len(done) == 1,
            "pending": len(out) == 1 and not done,
            "released": cancelled and not made,
            "failed": not out,
        }.get(view["status"], not out and (view["status"] in ("parked", "submitting") or not made))
        if not expected:
            states = {each["id"]: each["status"] for each in made}
            yield f"{refund} is recorded as {view['status']} ({view['code']}), and at the processor {states or 'nothing'} of it is there"
        recorded = {operation["refund_id"] for operation in view["processor"]["operations"]} - {None}
        if "manual" not in facts.marks and recorded != {each["id"] for each in made}:
            yield f"{refund}: recorded as {sorted(recorded)}, at the processor {sorted(each['id'] for each in made)}"
    for made in facts.refunds:
        ours = made["metadata"].get("refunds_refund")
        if ours is not None and ours not in facts.views:
            yield f"{made['id']} carries {ours}, which was never accepted"


def unseen(facts: Facts) -> Iterator[str]:
    """Refunds that somebody made past us are known, with their amounts."""
    for made in facts.refunds:
        if "refunds_refund" not in made["metadata"] and facts.external.get(made["id"]) != made["amount"]:
            yield f"{made['id']} over {made['amount']} was made past us, and is recorded as {facts.external.get(made['id'])}"


def sent_after_no(facts: Facts) -> Iterator[str]:
    """After an answer that nothing will be sent, nothing is."""
    for refund, answer in facts.told_no.items():
        view = facts.views.get(refund)
        if view is None:
            continue
        keys = {key_of(operation["kind"], operation["id"]) for operation in view["processor"]["operations"]}
        if view["status"] not in ("denied", "withdrawn", "expired") or any(
            request["key"] in keys for request in facts.creates + facts.cancels
        ):
            yield f"{refund}: {answer}; now it is {view['status']}"


def sent_while_stopped(facts: Facts) -> Iterator[str]:
    """Between a stop's answer and the resume no call leaves, except those that had started and were listed."""
    for view, key, attempts in facts.sendings():
        times = facts.posts.get(key, [])
        for stop in facts.stops:
            if stop.listed is not None and view["id"] in stop.listed:
                continue
            if stop.listed is not None and (late := [sent for sent in times if stop.answered_at < sent < stop.resumed_at]):
                yield f"{view['id']}: a call left {late[0] - stop.answered_at:.2f} s after a stop had answered"
            opened = [parse_rfc3339(attempt["opened_at"]).timestamp() for attempt in attempts]
            if any(stop.answered_at < moment < stop.resumed_at for moment in opened):
                yield f"{view['id']}: an attempt was opened after a stop had answered"


def sent_too_late(facts: Facts) -> Iterator[str]:
    """An attempt that was not sent by its time is void: no call leaves later, and there are no more calls than attempts."""
    for view, key, attempts in facts.sendings():
        times = sorted(facts.posts.get(key, []))
        limits = [parse_rfc3339(attempt["send_by"]).timestamp() for attempt in attempts]
        if len(times) > len(limits):
            yield f"{view['id']}: {len(times)} calls for {len(limits)} attempts"
        elif times and limits and times[-1] > max(limits) + LATE_S:
            yield f"{view['id']}: a call left {times[-1] - max(limits):.2f} s after the last attempt had lapsed"


CHECKS: dict[str, Callable[[Facts], Iterator[str]]] = {
    check.__name__: check
    for check in (
        *(over_refunded, refunded_twice, leg_twice, unapproved, lost, record_broken, guessed, failed_without_answer, differs, unseen),
        *(sent_after_no, sent_while_stopped, sent_too_late, sent_past_a_difference, undone),
    )
}
EVENTUAL = frozenset({"lost", "differs", "unseen"})
"""Checks of what may still be on its way when everything else is over; looked at again for a while."""


def judge(facts: Facts) -> list[Violation]:
    """Everything that is wrong with one payment."""
    return [Violation(name, facts.intent, what) for name, check in CHECKS.items() for what in check(facts)]


@cache
def moves() -> frozenset[tuple[str, str]]:
    """Every move that ``docs/status.md`` draws."""
    return frozenset(re.findall(r"^    (\w+) --> (\w+): ", STATUS_PAGE.read_text(), re.MULTILINE))


def key_of(kind: str, operation: str) -> str:
    """The idempotency key under which an operation or a leg is sent."""
    return f"refunds-{kind}-test-{operation}"


def group_sum(group: Group, shown: Json, out: int, refunds: list[str]) -> Iterator[str]:
    """The sums of a group are what was asked for and what became of it: ``out`` went back at the processor and by hand, for its ``refunds``."""
    sums, members = shown["sums"][0], {member["id"]: member for member in shown["refunds"]}
    if set(members) != set(refunds) or len(shown["sums"]) != 1:
        yield f"its parts are {sorted(members)} in {len(shown['sums'])} currencies, and {sorted(refunds)} were accepted"
    asked = sum(part["amount"] for part in shown["allocation"]["parts"])
    waiting = sum(member["amount"] or 0 for member in members.values() if member["status"] in WAITING - {"pending"})
    expected = {
        "asked": group.asked,
        "returned": out,
        "released": 0,
        "by_hand": 0,
        "under_way": waiting,
        "not_given": group.asked - out - waiting,
    }
    found = {name: sums[name] for name in expected}
    if found != expected or asked != group.asked:
        yield f"its sums are {found}, its parts {asked}, and it should be {expected}"
