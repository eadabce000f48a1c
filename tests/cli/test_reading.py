"""`refunds list` and `refunds show`: for people, for pipes, for programs."""

import json

import pytest

from tests.cli.conftest import FakeApi, Runner, refund

LONG = "a decision on $120.00 in queue team until 2026-03-01T10:00:00Z, which is a sentence that no terminal of eighty columns holds on one line"


def test_a_pipe_gets_every_id_and_sentence_whole_and_without_colour(api: FakeApi, refunds: Runner) -> None:
    api.on("GET", "/v1/refunds", (200, {"refunds": [refund(1, next_step=LONG), refund(2)], "next_cursor": None}))

    ran = refunds("list")

    lines = ran.out.splitlines()
    assert (ran.code, ran.err, len(lines)) == (0, "", 3)
    assert lines[1].startswith(f"{refund(1)['id']}  order-1  $120.00  awaiting_review  team") and LONG in lines[1]
    assert "\x1b" not in ran.out


def test_a_terminal_gets_a_table_that_keeps_ids_and_amounts_whole(api: FakeApi, refunds: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "100")
    api.on("GET", "/v1/refunds", (200, {"refunds": [refund(1, next_step=LONG)], "next_cursor": None}))

    ran = refunds("list")

    assert refund(1)["id"] in ran.out and "$120.00" in ran.out and "\x1b[" in ran.out
    assert len(ran.out.splitlines()) > 2, "the sentence folds"


def test_json_is_one_document_of_all_pages_with_nothing_else_on_stdout(api: FakeApi, refunds: Runner) -> None:
    api.on("GET", "/v1/refunds", (200, {"refunds": [refund(1)], "next_cursor": "c1"}), (200, {"refunds": [refund(2)], "next_cursor": None}))

    ran = refunds("list", "--json", "--status", "parked", "--order", "order-1", "--since", "2026-03-01T00:00:00Z")

    assert [r["id"] for r in json.loads(ran.out)["refunds"]] == [refund(1)["id"], refund(2)["id"]]
    first, second = (path for path, _ in api.sent("GET"))
    assert "status=parked" in first and "order_id=order-1" in first and "created_after=2026-03-01T00" in first and "cursor" not in first
    assert "cursor=c1" in second and "status=parked" in second


def test_more_than_the_limit_is_said_on_stderr(api: FakeApi, refunds: Runner) -> None:
    api.on("GET", "/v1/refunds", (200, {"refunds": [refund(1)], "next_cursor": "c1"}))

    ran = refunds("list", "--limit", "1")

    assert "first 1" in ran.err and len(api.sent("GET")) == 1


def test_show_puts_a_refund_beside_the_one_it_may_repeat(api: FakeApi, refunds: Runner) -> None:
    other = {
        "id": refund(1)["id"],
        "status": "succeeded",
        "amount_text": "$120.00",
        "payment_id": "pi_1",
        "channel": "chat",
        "agent_id": None,
    }
    other |= {"requested_by": "uma", "requester": "shop", "created_at": "2026-03-01T09:00:00Z"}
    api.on("GET", f"/v1/refunds/{refund(2)['id']}", (200, refund(2, possible_duplicate=other)))

    ran = refunds("show", refund(2)["id"])

    lines = ran.out.splitlines()
    at = lines.index("Looks like another request again")
    this, that = lines[at + 2], lines[at + 3]
    assert this.startswith(refund(2)["id"]) and "$120.00" in this
    assert that.startswith(refund(1)["id"]) and "succeeded" in that and "uma" in that and "chat" in that


def test_show_names_terms_checks_decisions_and_attempts(api: FakeApi, refunds: Runner) -> None:
    whole = refund(
        policy={"checks": [{"id": "ceiling", "result": "require_review", "observed": "$120.00", "limit": "up to $100.00", "text": ""}]},
        decisions=[
            {"kind": "consent", "verdict": "approve", "revision": 1, "role": "customer", "recorded_at": "t", "person": "customer:cu_1"}
        ],
        processor={"operations": [{"id": "op_1", "kind": "refund", "amount_text": "$120.00", "attempts": [{}, {}], "refund_id": "re_1"}]},
        run={"url": "http://127.0.0.1:8233/x"},
    )
    api.on("GET", f"/v1/refunds/{whole['id']}", (200, whole))

    ran = refunds("show", whole["id"])

    for text in (
        "$120.00 (12000 USD in the processor's unit)",
        "pi_1",
        "ab" * 32,
        "up to $100.00",
        "customer:cu_1",
        "re_1",
        "127.0.0.1:8233",
    ):
        assert text in ran.out
    assert json.loads(refunds("show", whole["id"], "--json").out) == whole


def test_show_tells_the_second_settler_what_the_first_one_said(api: FakeApi, refunds: Runner) -> None:
    by = {"id": "pr_1", "handle": "sven", "name": "Sven"}
    said = {"kind": "settle", "by": by, "recorded_at": "2026-03-01T10:00:00Z", "applied_at": None, "refused": None, "detail": None}
    not_refunded = {"outcome": "not_refunded", "processor_refund_id": None, "first_person": None}
    refunded = {"outcome": "refunded", "processor_refund_id": "re_7"}
    attempts = [
        {
            "number": 1,
            "outcome": "unknown",
            "reason": "no_answer",
            "opened_at": "2026-03-01T09:00:00Z",
            "answered_at": "2026-03-01T09:00:20Z",
        },
        {"number": 2, "outcome": None, "reason": None, "opened_at": "2026-03-01T09:01:00Z", "answered_at": None},
    ]
    whole = refund(
        status="parked",
        instructions=[
            said | {"id": "ins_1", "body": refunded, "refused": "SETTLEMENT_MISMATCH", "detail": "It is of another payment."},
            said | {"id": "ins_2", "body": not_refunded},
        ],
        processor={"operations": [{"id": "op_1", "kind": "refund", "amount_text": "$120.00", "attempts": attempts}]},
        texts={"message": "It broke.", "note:ins_2": "looked at all refunds of pi_1"},
    )
    api.on("GET", f"/v1/refunds/{whole['id']}", (200, whole))

    lines = refunds("show", whole["id"]).out.splitlines()

    (first,) = [line for line in lines if "settle: refunded by re_7" in line]
    (second,) = [line for line in lines if "settle: not refunded" in line]
    assert "Sven (sven)" in first and "refused: SETTLEMENT_MISMATCH It is of another payment." in first
    assert "waits for a second person who says the same" in second and second.endswith("looked at all refunds of pi_1")
    assert [line for line in lines if "note:" in line or "ins_" in line] == [] and "their message  It broke." in lines
    (tried,) = [line.split() for line in lines if "no_answer" in line]
    assert tried == ["1", "unknown", "no_answer", "2026-03-01T09:00:00Z", "2026-03-01T09:00:20Z"]
    assert any(line.startswith("2") and "no answer recorded" in line for line in lines)


def test_text_from_elsewhere_cannot_move_the_cursor_or_pass_for_markup(api: FakeApi, refunds: Runner) -> None:
    hostile = "\x1b[2Jgone\x07 [bold]not bold[/bold]\nnext \u202eesrever"
    api.on("GET", "/v1/refunds", (200, {"refunds": [refund(1, next_step=hostile)], "next_cursor": None}))

    ran = refunds("list")

    assert "\x1b" not in ran.out and "\u202e" not in ran.out and "[bold]not bold[/bold] next" in ran.out and len(ran.out.splitlines()) == 2


def test_an_id_cannot_reach_another_address(api: FakeApi, refunds: Runner) -> None:
    refunds("show", "../controls?x=1")

    assert api.sent("GET")[0][0] == "/v1/refunds/..%2Fcontrols%3Fx%3D1"


@pytest.mark.parametrize("typed", ["2026-03-01T00:00:00", "yesterday", "2026-03-01"])
def test_what_is_no_time_is_refused_with_the_option_and_an_example(api: FakeApi, refunds: Runner, typed: str) -> None:
    ran = refunds("list", "--since", typed)

    assert (ran.code, api.calls) == (2, []) and ran.err.startswith("--since: ") and "such as 2026-03-01T09:00:00Z" in ran.err


def test_show_says_what_the_amount_is_made_of(api: FakeApi, refunds: Runner) -> None:
    shirt = {"id": "shirt", "quantity": 1, "ordered": 3, "earlier": 0, "amount": 8467, "amount_text": "$84.67", "tax": 800, "discount": 334}
    breakdown = {"amount": 9467, "lines": [shirt | {"left": 16933}], "shipping": {"amount": 1000, "tax": 100, "discount": 0}}
    api.on("GET", f"/v1/refunds/{refund(1)['id']}", (200, refund(1, breakdown=breakdown)))

    rows = [line.split() for line in refunds("show", refund(1)["id"]).out.splitlines()]

    assert ["line", "units", "amount", "of", "it", "tax", "discount"] in rows
    assert ["shirt", "1", "of", "3", "8467", "800", "334"] in rows
    assert ["shipping", "-", "1000", "100", "0"] in rows
