"""The master key over the API: who may see its name and change over to another, and that calls meanwhile notice nothing."""

from refunds.people import Role
from tests.api.conftest import Api


async def test_an_operator_rotates_and_everybody_reads_on(api: Api) -> None:
    olga, auditor = await api.caller("olga", Role.OPERATOR), await api.caller("aud", Role.AUDITOR)
    order = await api.order()
    view = (await api.ask(api.asked(order, message="the box was crushed"))).json()
    before = (await api.call("GET", "/v1/master-key", auditor)).json()
    assert (before["number"], before["customers"], before["left"], before["under_other_masters"]) == (1, 1, 0, 0)

    began = (await api.call("POST", "/v1/master-key/rotation", olga, {"anew": True})).json()
    again = (await api.call("POST", "/v1/master-key/rotation", olga, {})).json()

    assert began == {"master": before["master"], "number": 2, "began": True, "rewrapped": 1, "done": True}
    assert again == began | {"began": False, "rewrapped": 0}
    assert (await api.call("GET", "/v1/master-key", olga)).json() == before | {"number": 2}
    shown = (await api.call("GET", f"/v1/refunds/{view['id']}", await api.reviewer())).json()
    assert (shown["customer_id"], shown["texts"]["message"]) == (order["customer_id"], "the box was crushed")
    entries = await api.rows("SELECT actor, data FROM ledger WHERE type = 'master_key_rotated'")
    assert [row["data"] for row in entries] == [{"master": before["master"], "number": 2}]


async def test_nobody_else_may(api: Api) -> None:
    for role in (Role.REQUESTER, Role.REVIEWER, Role.INTEGRATOR, Role.SETTLER):
        caller = await api.caller(role.value, role)
        for method, path in (("GET", "/v1/master-key"), ("POST", "/v1/master-key/rotation")):
            assert (await api.call(method, path, caller, {} if method == "POST" else None)).status_code == 403, (role, path)
    auditor = await api.caller("aud", Role.AUDITOR)
    assert (await api.call("POST", "/v1/master-key/rotation", auditor, {})).status_code == 403
    assert await api.count("sealing_keys") == 2


async def test_what_is_no_answer_to_it_is_named(api: Api) -> None:
    olga = await api.caller("olga", Role.OPERATOR)
    for body, field in (({"anew": "yes"}, "anew"), ({"begin": True}, "begin")):
        refused = await api.call("POST", "/v1/master-key/rotation", olga, body)
        assert (refused.status_code, refused.json()["field"]) == (422, field)
