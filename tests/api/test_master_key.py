"""The master key over the API: who may see its name and change over to another, and that calls meanwhile notice nothing."""

from sqlalchemy import text

from refunds.people import Role
from store.master_keys import LocalKeys
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


async def test_without_the_master_key_it_was_sealed_with_the_right_one_is_named(api: Api) -> None:
    olga, vault = await api.caller("olga", Role.OPERATOR), api.app.state.services.database.vault
    old, vault.masters = vault.masters, LocalKeys(b"other" + b"0" * 27)
    before = await api.rows("SELECT * FROM sealing_keys ORDER BY 1, 2")

    refused = await api.call("POST", "/v1/master-key/rotation", olga, {"anew": True})

    assert (refused.status_code, refused.json()["code"]) == (500, "SEALED_UNREADABLE")
    assert f"was wrapped with master key {old.current}, and this process holds {vault.masters.current}" in refused.json()["detail"]
    assert await api.rows("SELECT * FROM sealing_keys ORDER BY 1, 2") == before


async def test_a_row_that_was_changed_is_named_by_its_place_and_not_shown(api: Api) -> None:
    view = (await api.ask(api.asked(await api.order()))).json()
    async with api.owner.begin() as connection:
        await connection.execute(text("UPDATE customers SET ref_sealed = set_byte(ref_sealed, 20, get_byte(ref_sealed, 20) # 1)"))
    [customer] = await api.rows("SELECT id FROM customers")

    for path in (f"/v1/refunds/{view['id']}", "/v1/refunds"):
        shown = await api.call("GET", path, await api.reviewer())
        assert (shown.status_code, shown.json()["code"]) == (500, "SEALED_UNREADABLE")
        assert f"customers/{customer['id']}/ref cannot be decrypted" in shown.json()["detail"]
