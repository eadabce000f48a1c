"""What a person sees before they decide, and what the commands about approving send."""

import hashlib
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import FakeApi, Runner, refund

ID = refund()["id"]
REVIEW: dict[str, Any] = {
    "queue": "managers",
    "role": "manager",
    "people": 2,
    "approved_by": ["mia"],
    "assigned_to": "ravi",
    "specialists": ["fraud"],
    "reasons_required": True,
    "evidence_required": ["photo"],
    "evidence_missing": ["photo"],
    "rung": 1,
    "rungs": 2,
    "hours": "office",
    "reminded": False,
    "remind_at": "2026-03-01T14:00:00.000000Z",
    "decide_by": "2026-03-02T10:00:00.000000Z",
    "then": "escalates",
    "then_to": "heads",
}
EVIDENCE = {"id": "ev_1", "kind": "photo", "digest": None, "by": {"id": "pr_1", "handle": "bot", "name": "Bot"}, "counts": False}
SHOWN = refund(
    revision=2,
    review=REVIEW,
    evidence=[EVIDENCE | {"recorded_at": "2026-03-01T11:00:00.000000Z"}],
    texts={"evidence:ev_1": "a crack"},
    revisions=[
        {"revision": 1, "changes": []},
        {"revision": 2, "changes": [{"field": "amount", "before": 1, "after": 2, "words": "The amount is $120.00; it was $150.00."}]},
    ],
)
DELEGATION = {
    "id": "dlg_1",
    "from": {"id": "pr_1", "handle": "mia", "name": "Mia"},
    "to": {"id": "pr_2", "handle": "ravi", "name": "Ravi"},
    "role": "manager",
    "queue": None,
    "starts_at": "2026-03-01T10:00:00Z",
    "ends_at": "2026-03-05T10:00:00Z",
    "ended_at": None,
    "state": "in_force",
}


@pytest.mark.parametrize("command", [("show", ID), ("approve", ID, "--yes")])
def test_whoever_decides_sees_what_changed_what_is_missing_and_what_silence_does(
    api: FakeApi, refunds: Runner, command: tuple[str, ...]
) -> None:
    api.on("GET", f"/v1/refunds/{ID}", (200, SHOWN))
    api.on("POST", f"/v1/refunds/{ID}/decisions", (200, {"refund": SHOWN}))

    ran = refunds(*command)

    for words in (
        "The amount is $120.00; it was $150.00.",
        "2, approved by mia",
        "ravi",
        "fraud",
        "everybody who decides says why",
        "1 of 2, hours office",
        "to queue heads",
        "a crack",
    ):
        assert words in ran.out, words


def test_a_decision_on_behalf_of_somebody_names_them(api: FakeApi, refunds: Runner) -> None:
    api.on("GET", f"/v1/refunds/{ID}", (200, SHOWN))
    api.on("POST", f"/v1/refunds/{ID}/decisions", (200, {"refund": SHOWN}))

    refunds("approve", ID, "--note", "seen", "--on-behalf-of", "mia", "--yes", "--json")

    [(_, sent)] = api.sent("POST")
    assert (sent["on_behalf_of"], sent["note"]) == ("mia", "seen")


def test_a_delegation_is_made_listed_and_ended(api: FakeApi, refunds: Runner) -> None:
    api.on("POST", "/v1/delegations", (201, DELEGATION))
    api.on("GET", "/v1/delegations", (200, {"delegations": [DELEGATION]}))
    api.on("DELETE", "/v1/delegations/dlg_1", (200, DELEGATION | {"state": "ended", "ended_at": "2026-03-02T10:00:00Z"}))

    made = refunds("delegations", "add", "ravi", "--role", "manager", "--until", "2026-03-05T10:00:00Z", "--yes")
    listed = refunds("delegations", "list", "--in-force")
    ended = refunds("delegations", "end", "dlg_1", "--yes")

    assert api.sent("POST") == [("/v1/delegations", {"to": "ravi", "role": "manager", "ends_at": "2026-03-05T10:00:00Z"})]
    assert made.err == "dlg_1: mia lets ravi decide as manager until 2026-03-05T10:00:00Z (in force).\n"
    assert "dlg_1" in listed.out and "in force" in listed.out
    assert "(ended)" in ended.err
    api.on("GET", "/v1/delegations", (200, {"delegations": []}))
    assert refunds("delegations", "list").err == "No delegation matches.\n"
    assert refunds("delegations", "add", "ravi", "--role", "operator", "--until", "2026-03-05T10:00:00Z", "--yes").code == 2
    assert len(api.sent("POST")) == 1


def test_giving_it_to_somebody_or_to_nobody(api: FakeApi, refunds: Runner) -> None:
    api.on("POST", f"/v1/refunds/{ID}/assignment", (200, SHOWN))

    refunds("assign", ID, "--to", "ravi", "--reason", "knows it", "--yes")
    refunds("assign", ID, "--nobody", "--queue", "managers", "--reason", "away", "--yes")
    wrong = refunds("assign", ID, "--reason", "why", "--yes")

    path = f"/v1/refunds/{ID}/assignment"
    assert api.sent("POST") == [
        (path, {"reason": "knows it", "to": "ravi"}),
        (path, {"reason": "away", "queue": "managers", "to": None}),
    ]
    assert wrong.code == 2


def test_of_a_file_only_the_digest_is_sent(api: FakeApi, refunds: Runner, tmp_path: Path) -> None:
    api.on("POST", f"/v1/refunds/{ID}/evidence", (201, SHOWN))
    (tmp_path / "invoice.pdf").write_bytes(b"an invoice")

    ran = refunds("attach", ID, "--kind", "invoice", "--reference", "https://files.example/1", "--file", "invoice.pdf")

    digest = hashlib.sha256(b"an invoice").hexdigest()
    assert ran.code == 0
    assert api.sent("POST") == [
        (f"/v1/refunds/{ID}/evidence", {"kind": "invoice", "reference": "https://files.example/1", "digest": digest})
    ]


@pytest.mark.parametrize(
    "arguments",
    [(), ("--statement", "a", "--reference", "b"), ("--reference", "b"), ("--statement", "a", "--digest", "ab" * 32)],
)
def test_evidence_that_is_half_said_is_not_sent(api: FakeApi, refunds: Runner, arguments: tuple[str, ...]) -> None:
    ran = refunds("attach", ID, "--kind", "photo", *arguments)

    assert (ran.code, api.calls) == (2, [])


def test_what_somebody_may_approve_is_shown_back_in_words_and_sent_in_the_unit_of_the_currency(api: FakeApi, refunds: Runner) -> None:
    api.on("GET", "/v1/people", (200, {"people": [{"id": "pr_1", "handle": "Rita"}]}))
    api.on("PUT", "/v1/people/pr_1/approving", (200, {"id": "pr_1", "handle": "Rita", "approves_up_to": {"USD": 50000, "JPY": 75000}}))

    ran = refunds("people", "approving", "rita", "--up-to", "500.00 USD", "--up-to", "75,000 JPY", "--yes")
    wrong = refunds("people", "approving", "rita", "--up-to", "500,00 USD", "--yes")

    assert ran.err == "rita: $500.00 (USD), ¥75,000 (JPY).\n"
    assert "approves up to  $500.00 (USD), ¥75,000 (JPY)" in ran.out.splitlines()
    assert api.sent("PUT") == [
        ("/v1/people/pr_1/approving", {"approves_up_to": {"USD": 50000, "JPY": 75000}, "operates_classifier": False, "owner": None})
    ]
    assert wrong.code == 2
