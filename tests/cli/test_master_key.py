"""``refunds keys master`` and ``rotate-master``."""

import json

from tests.cli.conftest import FakeApi, Runner

STANDING = {"master": "local:ab", "number": 1, "customers": 700, "left": 0, "under_other_masters": 0}


def stepped(rewrapped: int, *, done: bool, began: bool = False) -> dict[str, object]:
    return {"master": "local:cd", "number": 2, "began": began, "rewrapped": rewrapped, "done": done}


def test_it_goes_on_until_none_is_left_and_says_how_far_it_is(api: FakeApi, refunds: Runner) -> None:
    after = STANDING | {"master": "local:cd", "number": 2}
    api.on("GET", "/v1/master-key", (200, STANDING), (200, after))
    api.on("POST", "/v1/master-key/rotation", (200, stepped(500, done=False, began=True)), (200, stepped(200, done=True)))

    ran = refunds("keys", "rotate-master", "--yes")

    assert api.sent("POST") == [("/v1/master-key/rotation", {"anew": True}), ("/v1/master-key/rotation", {"anew": False})]
    assert ran.code == 0
    assert "500 of 700" in ran.err and "700 wrapped anew with wrapping key 2 under local:cd; 0 left." in ran.err


def test_one_that_was_stopped_is_carried_on(api: FakeApi, refunds: Runner) -> None:
    api.on("GET", "/v1/master-key", (200, STANDING | {"left": 200}), (200, STANDING))
    api.on("POST", "/v1/master-key/rotation", (200, stepped(200, done=True)))

    assert "200 keys of customers are to be wrapped anew (going on)." in refunds("keys", "rotate-master", "--yes").err


def test_what_still_needs_an_older_master_key_is_said(api: FakeApi, refunds: Runner) -> None:
    api.on("GET", "/v1/master-key", (200, STANDING), (200, STANDING | {"under_other_masters": 2}))
    api.on("POST", "/v1/master-key/rotation", (200, stepped(0, done=False)), (200, stepped(1, done=True)))

    ran = refunds("keys", "rotate-master", "--yes")

    assert "2 of our own keys still need an older master key: do not take it away." in ran.err
    assert "0 of 700" not in ran.err, "a step that could wrap nothing is no progress"


def test_it_is_not_begun_without_a_yes(api: FakeApi, refunds: Runner) -> None:
    api.on("GET", "/v1/master-key", (200, STANDING))

    assert refunds("keys", "rotate-master").code == 4
    assert api.sent("POST") == []


def test_the_standing_is_shown(api: FakeApi, refunds: Runner) -> None:
    api.on("GET", "/v1/master-key", (200, STANDING))

    assert json.loads(refunds("keys", "master", "--json").out) == STANDING
    assert "under other masters" in refunds("keys", "master").out
