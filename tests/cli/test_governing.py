"""Commands of operators and integrators."""

import json
from pathlib import Path

import pytest

from tests.cli.conftest import TERMS, FakeApi, Runner, refund

STOPPED = {
    "scope": "everything",
    "state": "stopped",
    "mode": "live",
    "reason": "fire",
    "changed_by": "pr_1",
    "changed_by_handle": "olga",
    "changed_at": "t",
}


def test_stop_never_asks_and_lists_what_had_started(api: FakeApi, refunds: Runner) -> None:
    api.on("PUT", "/v1/controls", (200, STOPPED | {"calls_in_flight": [{"attempt": "att_1", "refund": "rf_1", "may_still_send": False}]}))

    ran = refunds("stop", "--reason", "fire")

    assert api.sent("PUT") == [("/v1/controls", {"scope": "everything", "state": "stopped", "reason": "fire"})]
    assert ran.code == 0 and "rf_1" in ran.out and "att_1" in ran.out


def test_a_stop_that_met_nothing_says_so(api: FakeApi, refunds: Runner) -> None:
    api.on("PUT", "/v1/controls", (200, STOPPED | {"calls_in_flight": [], "resumed": 0}))

    assert refunds("stop", "--reason", "fire").err == "No call was under way.\n"


@pytest.mark.parametrize(
    ("state", "mode", "sends"),
    [
        ("running", "live", "yes"),
        ("running", "draft", "no (draft)"),
        ("stopped", "live", "no (stopped)"),
        ("stopped", "draft", "no (stopped, draft)"),
    ],
)
def test_controls_say_whether_money_is_sent(api: FakeApi, refunds: Runner, state: str, mode: str, sends: str) -> None:
    api.on("GET", "/v1/controls", (200, {"controls": [STOPPED | {"state": state, "mode": mode}]}))

    ran = refunds("controls")

    assert f"sends money  {sends}" in ran.out.splitlines() and "changed by   olga" in ran.out.splitlines() and ran.err == ""


@pytest.mark.parametrize(("changed", "says"), [({}, "no (stopped): everything"), ({"state": "running"}, "yes")])
def test_a_scope_sends_nothing_while_everything_is_stopped(api: FakeApi, refunds: Runner, changed: dict[str, str], says: str) -> None:
    agents = STOPPED | {"scope": "agents", "state": "running", "mode": None}
    api.on("GET", "/v1/controls", (200, {"controls": [STOPPED | changed, agents]}))

    block = refunds("controls").out.split("\n\n")[1]

    assert f"sends money  {says}" in block.splitlines()


def test_a_scope_that_was_resumed_alone_promises_nothing(api: FakeApi, refunds: Runner) -> None:
    api.on(
        "PUT", "/v1/controls", (200, STOPPED | {"scope": "agents", "state": "running", "mode": None, "calls_in_flight": [], "resumed": 0})
    )

    assert "sends money" not in refunds("resume", "--yes", "--agents", "--reason", "over").out


def test_a_stop_without_an_answer_says_that_it_may_not_be_stopped(api: FakeApi, refunds: Runner) -> None:
    api.on(
        "PUT",
        "/v1/controls",
        (503, {"code": "STORE_UNAVAILABLE", "detail": "x", "status": 503}),
        (403, {"code": "FORBIDDEN", "detail": "x", "status": 403}),
    )

    unknown, refused = refunds("stop", "--reason", "fire"), refunds("stop", "--reason", "fire")

    assert unknown.code != 0 and "may not be stopped" in unknown.err and "role payments" in unknown.err
    assert refused.code != 0 and "may not be stopped" not in refused.err


def test_scopes_stand_apart(api: FakeApi, refunds: Runner) -> None:
    api.on("GET", "/v1/controls", (200, {"controls": [STOPPED, STOPPED | {"scope": "agents"}]}))

    blocks = refunds("controls").out.split("\n\n")

    assert [block.splitlines()[0].split() for block in blocks] == [["scope", "everything"], ["scope", "agents"]]


def test_a_stop_without_a_reason_is_not_sent(api: FakeApi, refunds: Runner) -> None:
    assert (refunds("stop").code, api.calls) == (2, [])


@pytest.mark.parametrize(
    ("options", "scope"),
    [
        ((), "everything"),
        (("--agents",), "agents"),
        (("--agent", "bot"), "agent:bot"),
        (("--agent", "pr_1"), "agent:pr_1"),
        (("--processor", "stripe"), "processor:stripe"),
    ],
)
@pytest.mark.parametrize(("command", "state"), [(("stop",), "stopped"), (("resume", "--yes"), "running")])
def test_a_scope_is_named_by_one_option(
    api: FakeApi, refunds: Runner, command: tuple[str, ...], state: str, options: tuple[str, ...], scope: str
) -> None:
    api.on("PUT", "/v1/controls", (200, STOPPED | {"scope": scope, "state": state, "calls_in_flight": [], "resumed": 0}))

    assert refunds(*command, *options, "--reason", "fire").code == 0
    assert api.sent("PUT") == [("/v1/controls", {"scope": scope, "state": state, "reason": "fire"})]


@pytest.mark.parametrize(
    "options",
    [
        ("--agents", "--processor", "stripe"),
        ("--agents", "--agent", "bot"),
        ("--agent", "bot", "--processor", "stripe"),
        ("--agent", " "),
        ("--processor", ""),
    ],
)
@pytest.mark.parametrize("command", [("stop",), ("resume", "--yes")])
def test_two_scopes_or_half_of_one_are_not_sent(api: FakeApi, refunds: Runner, command: tuple[str, ...], options: tuple[str, ...]) -> None:
    assert (refunds(*command, *options, "--reason", "fire").code, api.calls) == (2, [])


def test_a_mode_is_set_without_stopping_or_resuming(api: FakeApi, refunds: Runner) -> None:
    api.on("PUT", "/v1/controls", (200, STOPPED | {"mode": "draft"}))

    assert refunds("mode", "draft", "--reason", "a first look").code == 0
    assert refunds("mode", "live", "--reason", "looked", "--yes").code == 0
    assert refunds("mode", "dry", "--reason", "x").code == 2
    assert [body for _, body in api.sent("PUT")] == [
        {"scope": "everything", "mode": "draft", "reason": "a first look"},
        {"scope": "everything", "mode": "live", "reason": "looked"},
    ]


def test_controls_say_whose_a_stop_is_and_that_test_mode_moves_no_money(api: FakeApi, refunds: Runner) -> None:
    halts = [{"code": "KEY_REFUSED", "opened_by_handle": None, "reason": "revoked"}]
    shown = STOPPED | {"stopped_by_handle": "olga", "stopped_at": "t", "halts": halts}
    api.on("GET", "/v1/controls", (200, {"moves_money": False, "controls": [shown]}))

    ran = refunds("controls")

    assert "stopped by   olga" in ran.out.splitlines() and "halts        KEY_REFUSED by the orchestrator: revoked" in ran.out.splitlines()
    assert ran.err.startswith("test: no money moves.")


def test_resume_asks_for_yes(api: FakeApi, refunds: Runner) -> None:
    api.on("PUT", "/v1/controls", (200, STOPPED | {"state": "running", "resumed": 2}))

    ran = refunds("resume", "--reason", "out", "--yes")
    assert ran.code == 0 and ran.err == "2 held refunds go on.\n"
    assert api.sent("PUT") == [("/v1/controls", {"scope": "everything", "state": "running", "reason": "out"})]


def test_one_held_refund_is_one(api: FakeApi, refunds: Runner) -> None:
    api.on("PUT", "/v1/controls", (200, STOPPED | {"state": "running", "calls_in_flight": [], "resumed": 1}))

    assert refunds("resume", "--reason", "out", "--yes").err == "1 held refund goes on.\n"


def test_orders_are_sent_one_by_one_under_their_own_id(api: FakeApi, refunds: Runner, tmp_path: Path) -> None:
    api.on("PUT", "/v1/orders/A%2F1", (201, {"order_id": "A/1", "version": 1}))
    api.on("PUT", "/v1/orders/B", (200, {"order_id": "B", "version": 2}))
    file = tmp_path / "orders.json"
    file.write_text(json.dumps([{"order_id": "A/1", "customer_id": "c"}, {"order_id": "B", "customer_id": "c"}]))

    ran = refunds("orders", "put", str(file))

    assert api.sent("PUT") == [("/v1/orders/A%2F1", {"customer_id": "c"}), ("/v1/orders/B", {"customer_id": "c"})]
    assert ran.out.splitlines()[1].split() == ["A/1", "1"]


def test_an_order_without_an_id_sends_none_of_the_file(api: FakeApi, refunds: Runner, tmp_path: Path) -> None:
    file = tmp_path / "orders.json"
    file.write_text('[{"order_id": "A"}, {"customer_id": "c"}]')

    ran = refunds("orders", "put", str(file))

    assert (ran.code, api.calls) == (2, []) and "order 2 needs an order_id" in ran.err


def test_a_file_that_is_not_json_is_named(api: FakeApi, refunds: Runner, tmp_path: Path) -> None:
    file = tmp_path / "orders.json"
    file.write_text("{")

    ran = refunds("orders", "put", str(file))

    assert (ran.code, api.calls) == (2, []) and "orders.json is not JSON" in ran.err


def test_a_new_key_is_printed_once_with_its_roles(api: FakeApi, refunds: Runner) -> None:
    api.on("GET", "/v1/people", (200, {"people": [{"id": "pr_2", "handle": "pr_9"}, {"id": "pr_1", "handle": "Rita"}]}))
    api.on("POST", "/v1/keys", (201, {"id": "key_1", "roles": ["manager", "reviewer"], "key": "rfk_new"}))

    ran = refunds("keys", "add", "rita", "--role", "reviewer", "--role", "manager")

    assert api.sent("POST") == [("/v1/keys", {"principal_id": "pr_1", "roles": ["reviewer", "manager"]})]
    assert ran.out.count("rfk_new") == 1 and "not shown again" in ran.err


def test_policy_check_names_file_line_and_field_and_asks_nobody(refunds: Runner, tmp_path: Path) -> None:
    good, bad = tmp_path / "good.yaml", tmp_path / "bad.yaml"
    good.write_text(refunds("policy", "show", "--sample").out)
    bad.write_text(good.read_text().replace("required: true", "required: maybe", 1))

    assert refunds("policy", "check", str(good)).code == 0
    ran = refunds("policy", "check", str(bad))

    assert ran.code == 2 and f"{bad}: line " in ran.err and "consent.required" in ran.err


def test_a_policy_that_is_wrong_is_not_published(api: FakeApi, refunds: Runner, tmp_path: Path) -> None:
    bad = tmp_path / "bad.yaml"
    bad.write_text("name: x\n")

    assert (refunds("policy", "publish", str(bad), "--note", "x", "--yes").code, api.calls) == (2, [])


def test_publish_sends_the_text_as_it_is(api: FakeApi, refunds: Runner, tmp_path: Path) -> None:
    api.on("POST", "/v1/policy/versions", (201, {"version": 2, "hash": "h", "effective_from": "t"}))
    file = tmp_path / "policy.yaml"
    file.write_text(refunds("policy", "show", "--sample").out)

    ran = refunds("policy", "publish", str(file), "--note", "new", "--yes")

    assert api.sent("POST") == [("/v1/policy/versions", {"source": file.read_text(), "note": "new"})] and ran.code == 0


def test_one_processor_is_stopped_and_resumed_by_name(api: FakeApi, refunds: Runner) -> None:
    halted = STOPPED | {"scope": "processor:stripe", "mode": None, "code": "KEY_REFUSED", "changed_by": None, "changed_by_handle": None}
    api.on("PUT", "/v1/controls", (200, halted | {"calls_in_flight": [], "resumed": 0}))

    ran = refunds("stop", "--reason", "key", "--processor", "stripe")
    refunds("resume", "--reason", "new key", "--processor", "stripe", "--yes")

    assert [sent["scope"] for _, sent in api.sent("PUT")] == ["processor:stripe"] * 2
    assert "code         KEY_REFUSED" in ran.out.splitlines()
    assert "changed by   the orchestrator" in ran.out.splitlines()


@pytest.mark.parametrize(("mode", "said"), [("test", True), ("live", False)])
def test_a_refund_in_test_mode_says_that_no_money_moves(api: FakeApi, refunds: Runner, mode: str, said: bool) -> None:
    shown = refund(terms=TERMS | {"mode": mode})
    api.on("GET", f"/v1/refunds/{shown['id']}", (200, shown))

    assert ("test: no money moves" in refunds("show", shown["id"]).out) is said
