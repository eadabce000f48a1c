"""The policy in the terminal: versions, differences, and simulations of recorded requests and of files."""

import csv
import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from refunds.policy import policy_hash, sample_policy_text
from tests.cli.conftest import FakeApi, Runner, refund

SAMPLE = sample_policy_text()
STRICT = SAMPLE.replace("consent_only_up_to: 100.00", "consent_only_up_to: 50.00", 1)
SVG = "{http://www.w3.org/2000/svg}"
ANN = {"id": "pr_1", "handle": "ann", "name": "Ann"}


def version(number: int, source: str = SAMPLE, **changed: Any) -> dict[str, Any]:
    plain: dict[str, Any] = {
        "version": number,
        "hash": policy_hash(source),
        "source": source,
        "effective_from": "2026-03-01T00:00:00.000000Z",
        "standing": "in_force",
        "author_id": "pr_1",
        "author": ANN,
        "note": "spring",
        "created_at": "2026-02-01T00:00:00.000000Z",
    }
    return plain | changed


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The sample, and one with a lower ceiling, as files where the command runs; by the names that it takes."""
    monkeypatch.chdir(tmp_path)
    for name, source in (("old.yaml", SAMPLE), ("new.yaml", STRICT)):
        (tmp_path / name).write_text(source)
    return {"old": "old.yaml", "new": "new.yaml"}


# --- versions ----------------------------------------------------------------------------------------------------------------------------


def test_versions_are_listed(api: FakeApi, refunds: Runner) -> None:
    rows = [version(2, standing="scheduled"), version(1, author=None, author_id=None, standing="in_force")]
    api.on("GET", "/v1/policy/versions", (200, {"in_force": 1, "versions": rows, "next_before": None}))

    ran = refunds("policy", "list")

    assert (ran.code, ran.err) == (0, "")
    first, second = [line.split() for line in ran.out.splitlines()[1:]]
    assert (first[:2], first[3]) == (["2", "scheduled"], "ann")
    assert "the embedded sample" in " ".join(second)


def test_a_version_is_printed_as_it_was_published(api: FakeApi, refunds: Runner) -> None:
    api.on("GET", "/v1/policy/versions/7", (200, version(7)))

    ran = refunds("policy", "show", "--version", "7")

    assert ran.out == SAMPLE
    assert "Version 7 (in force)" in ran.err and "ann: spring" in ran.err and policy_hash(SAMPLE) in ran.err


def test_a_policy_is_shown_as_a_table_for_people(api: FakeApi, refunds: Runner) -> None:
    api.on("GET", "/v1/policy", (200, version(7)))

    ran = refunds("policy", "show", "--table")

    assert "currencies.USD.largest" in ran.out and "$10,000.00" in ran.out


def test_the_version_in_force_at_a_date_is_asked_for(api: FakeApi, refunds: Runner) -> None:
    api.on("GET", "/v1/policy", (200, version(3)))

    refunds("policy", "show", "--at", "2026-01-31")

    assert api.sent("GET") == [("/v1/policy?at=2026-01-31T00%3A00%3A00.000000Z", None)]


def test_only_one_way_to_name_a_version(api: FakeApi, refunds: Runner) -> None:
    ran = refunds("policy", "show", "--version", "7", "--sample")

    assert (ran.code, api.calls) == (2, [])


def test_publishing_what_is_in_force_says_so(api: FakeApi, refunds: Runner, files: dict[str, str]) -> None:
    api.on("POST", "/v1/policy/versions", (200, version(3) | {"published": False}))

    ran = refunds("policy", "publish", files["old"], "--note", "x", "--yes")

    assert ran.code == 0 and "Nothing was published: version 3" in ran.err


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("name: [\n", ["line 2", "Correct the indentation"]),
        (SAMPLE + "magic: true\n", ["magic", "not known"]),
        (SAMPLE.replace("largest: 10000.00", "largest: -1.00", 1), ["currencies.USD.largest", "above zero"]),
        (SAMPLE + "  - {id: z, when: '1 / payment.refunds_made > 0', then: deny, text: Z.}\n", ["divides by zero", "Ask first"]),
    ],
)
def test_a_file_that_cannot_be_published_is_told_by_line_and_sent_to_nobody(
    api: FakeApi, refunds: Runner, tmp_path: Path, source: str, told: list[str]
) -> None:
    (tmp_path / "bad.yaml").write_text(source)
    for command in (
        ["check", "bad.yaml"],
        ["publish", "bad.yaml", "--note", "x", "--yes"],
        ["diff", "bad.yaml", "bad.yaml"],
        ["simulate", "bad.yaml"],
    ):
        ran = refunds("policy", *command)
        assert (ran.code, ran.out, api.calls) == (2, "", [])
        assert [words for words in ["bad.yaml: line ", *told] if words not in ran.err] == []


# --- diff --------------------------------------------------------------------------------------------------------------------------------


def test_two_files_are_compared_without_asking_anybody(refunds: Runner, files: dict[str, str]) -> None:
    ran = refunds("policy", "diff", files["old"], files["new"])

    assert ran.code == 0
    assert [line.split() for line in ran.out.splitlines()] == [
        ["setting", "old.yaml", "new.yaml", "is"],
        ["currencies.USD.consent_only_up_to", "$100.00", "$50.00", "stricter"],
    ]


def test_versions_are_compared_by_number_and_with_the_one_in_force(api: FakeApi, refunds: Runner) -> None:
    api.on("GET", "/v1/policy/versions/3", (200, version(3, STRICT)))
    api.on("GET", "/v1/policy", (200, version(4)))

    found = json.loads(refunds("policy", "diff", "3", "now", "--json").out)

    assert (found["before"]["version"], found["after"]["version"], found["same"]) == (3, 4, False)
    assert [(one["setting"], one["direction"]) for one in found["differences"]] == [("currencies.USD.consent_only_up_to", "looser")]


def test_the_exit_code_says_whether_they_differ_and_whether_something_is_looser(refunds: Runner, files: dict[str, str]) -> None:
    old, new = files["old"], files["new"]

    codes = [refunds("policy", "diff", *pair, "--exit-code").code for pair in ((old, old), (old, new), (new, old))]

    assert codes == [0, 5, 6]
    assert refunds("policy", "diff", new, old).code == 0


def test_what_is_neither_version_nor_file_is_named(api: FakeApi, refunds: Runner, files: dict[str, str]) -> None:
    ran = refunds("policy", "diff", files["old"], "nothing.yaml")

    assert (ran.code, api.calls) == (2, []) and "nothing.yaml is neither the number of a version" in ran.err


# --- simulating recorded requests --------------------------------------------------------------------------------------------------------


def way(name: str, tier: int) -> dict[str, Any]:
    return {"way": name, "tier": tier}


CHANGED = {
    "id": "rf_1",
    "amount": 6_000,
    "currency": "USD",
    "reason": "product_issue",
    "before": way("automatic", 2),
    "after": way("reviewer", 3),
    "direction": "stricter",
    "checks": ["ceiling"],
}
BOTH = {"before": 0, "after": 0}
RESULT = {
    "before": {"version": 3, "hash": "h"},
    "after": {"version": None, "name": "Sample policy"},
    "since": None,
    "until": "2026-03-01T00:00:00.000000Z",
    "parts_of_groups": 2,
    "requests": 9_000,
    "changed": 2_500,
    "stricter": 2_500,
    "looser": 0,
    "other": 0,
    "left_out": [{"why": "never judged", "requests": 4, "examples": []}],
    "limits_taken_to_have_room": {},
    "moves": [{"before": "automatic", "after": "reviewer", "requests": 2_500, "amounts": {"USD": 15_000_000}}],
    "outcomes": {"answered": BOTH, "automatic": {"before": 9_000, "after": 6_500}, "reviewer": {"before": 0, "after": 2_500}},
    "tiers": {"2": {"before": 9_000, "after": 6_500}, "3": {"before": 0, "after": 2_500}},
    "amounts": {"USD": {"automatic": {"before": 40_000_000, "after": 25_000_000}, "reviewer": {"before": 0, "after": 15_000_000}}},
    "reasons": {"product_issue": {"requests": 9_000, "stricter": 2_500, "looser": 0, "other": 0}},
    "checks": {"ceiling": {"stricter": 2_500, "looser": 0, "other": 0}},
}


def streamed(*lines: dict[str, Any]) -> str:
    return "".join(json.dumps(line) + "\n" for line in lines)


WHOLE = streamed(
    {"type": "progress", "done": 0, "total": 9_000},
    {"type": "changed", "changed": CHANGED},
    {"type": "changed", "changed": CHANGED | {"id": "=cmd()"}},
    {"type": "changed", "changed": CHANGED | {"id": "rf_2", "before": way("reviewer", 3), "checks": [], "direction": "other"}},
    {"type": "progress", "done": 9_000, "total": 9_000},
    {"type": "result", "result": RESULT, "at": "2026-03-01T00:00:00.000000Z"},
)


def test_a_simulation_shows_what_would_change_by_everything(api: FakeApi, refunds: Runner, files: dict[str, str]) -> None:
    api.on("POST", "/v1/policy/simulations", (200, WHOLE))

    ran = refunds("policy", "simulate", files["new"], "--since", "2026-01-01", "--show", "1")

    assert ran.code == 0
    assert api.sent("POST") == [("/v1/policy/simulations", {"source": STRICT, "since": "2026-01-01T00:00:00.000000Z"})]
    assert "Of 9,000 requests as version 3 judges them, 2,500 would go otherwise under new.yaml (2,500 stricter)." in ran.out
    for words in ("Left out: 4, never judged.", "2 of them are parts of groups", "$150,000.00", "-$150,000.00", "+2,500", "because of"):
        assert words in ran.out
    assert "░" * 40 + " 9,000" in ran.out and "█" * 12 + " 2,500" in ran.out
    assert "a reviewer" in ran.out and "a reviewer, but otherwise" not in ran.out
    assert ran.out.count("rf_1") == 1 and "=cmd()" not in ran.out
    assert "--changed FILE.csv" in ran.err


def test_the_same_way_with_other_people_or_times_is_told_apart(api: FakeApi, refunds: Runner, files: dict[str, str]) -> None:
    same = CHANGED | {"before": way("reviewer", 3), "direction": "other", "checks": []}
    moves = [{"before": "reviewer", "after": "reviewer", "requests": 1, "amounts": {"USD": 6_000}}]
    result = RESULT | {"changed": 1, "stricter": 0, "other": 1, "moves": moves}
    api.on("POST", "/v1/policy/simulations", (200, streamed({"type": "changed", "changed": same}, {"type": "result", "result": result})))

    ran = refunds("policy", "simulate", files["new"], "--picture", "p.html")

    assert ran.out.count("a reviewer, but otherwise") == 2 and "its ladder or tier" in ran.out
    assert "<td>a reviewer, but otherwise</td>" in Path("p.html").read_text()


def test_every_changed_request_goes_into_a_file_that_a_spreadsheet_runs_nothing_of(
    api: FakeApi, refunds: Runner, files: dict[str, str], tmp_path: Path
) -> None:
    api.on("POST", "/v1/policy/simulations", (200, WHOLE))

    refunds("policy", "simulate", files["new"], "--changed", "all.csv", "--show", "0")

    with (tmp_path / "all.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["id"] for row in rows] == ["rf_1", "'=cmd()", "rf_2"]
    assert rows[2]["checks"] == "", "what no check made different stays an empty cell"
    assert (rows[0]["before"], rows[0]["after"], rows[0]["tier_after"], rows[0]["checks"]) == ("automatic", "reviewer", "3", "ceiling")


@pytest.mark.parametrize("name", ["p.svg", "p.html"])
def test_the_picture_is_whole_and_loads_nothing(api: FakeApi, refunds: Runner, files: dict[str, str], tmp_path: Path, name: str) -> None:
    api.on("POST", "/v1/policy/simulations", (200, WHOLE))

    refunds("policy", "simulate", files["new"], "--picture", name)

    text = (tmp_path / name).read_text()
    assert "9,000" in text and "2,500" in text and "a reviewer" in text
    assert "<script" not in text and "href" not in text and "url(" not in text
    if name.endswith(".svg"):
        drawn = ElementTree.fromstring(text)
        bars = [float(bar.attrib["width"]) for bar in drawn.iter(f"{SVG}rect")][1:]
        assert bars == [460, 332, 0, 127]


def test_a_long_name_is_whole_in_the_picture_and_covers_nothing(
    api: FakeApi, refunds: Runner, files: dict[str, str], tmp_path: Path
) -> None:
    api.on("POST", "/v1/policy/simulations", (200, WHOLE))
    name = f"{'a<b' * 40}.yaml"
    (tmp_path / name).write_text(STRICT)

    assert refunds("policy", "simulate", name, "--picture", "p.svg").code == 0

    drawn = ElementTree.parse(tmp_path / "p.svg")
    title = [(int(text.get("y", "0")), text.text or "") for text in drawn.iter(f"{SVG}text") if text.get("font-weight")]
    first_bar = min(int(bar.get("y", "0")) for bar in drawn.iter(f"{SVG}rect") if bar.get("y"))
    assert max(len(line) for _, line in title) <= 88 and name in "".join(line for _, line in title)
    assert len({y for y, _ in title}) == len(title) > 2 and title[-1][0] < first_bar


def test_a_picture_of_no_kind_is_refused_before_anything_runs(api: FakeApi, refunds: Runner, files: dict[str, str]) -> None:
    assert (refunds("policy", "simulate", files["new"], "--picture", "p.bmp").code, api.calls) == (2, [])


def test_a_version_is_tried_against_another(api: FakeApi, refunds: Runner) -> None:
    api.on("POST", "/v1/policy/simulations", (200, WHOLE))

    ran = refunds("policy", "simulate", "--version", "4", "--against", "2", "--json", "--exit-code")

    assert api.sent("POST") == [("/v1/policy/simulations", {"version": 4, "against": 2})]
    assert (ran.code, json.loads(ran.out)["changed_requests"][0]["id"]) == (5, "rf_1")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "Name either a policy file or --version"),
        (["new.yaml", "--version", "2"], "Name either a policy file or --version"),
        (["new.yaml", "--against", "old.yaml"], "a file works with --csv"),
        (["new.yaml", "--since", "soon"], "--since"),
        (["new.yaml", "--csv", "old.yaml", "--since", "2d"], "a CSV file is taken whole"),
        (["new.yaml", "--csv", "old.yaml", "--until", "2d"], "a CSV file is taken whole"),
    ],
)
def test_what_cannot_be_simulated_is_said_and_sent_to_nobody(
    api: FakeApi, refunds: Runner, files: dict[str, str], arguments: list[str], told: str
) -> None:
    ran = refunds("policy", "simulate", *arguments)

    assert (ran.code, api.calls) == (2, []) and told in ran.err


@pytest.mark.parametrize(
    ("answer", "code", "told"),
    [
        (
            (200, streamed({"type": "error", "code": "STORE_UNAVAILABLE", "detail": "The database cannot be reached."})),
            1,
            "STORE_UNAVAILABLE",
        ),
        ((200, streamed({"type": "progress", "done": 0, "total": 3})), 3, "broke off; there is no result"),
        ((200, WHOLE[:-40]), 3, "broke off in the middle"),
        ((429, {"code": "SIMULATION_RUNNING", "detail": "One runs."}), 1, "SIMULATION_RUNNING"),
    ],
)
def test_half_a_simulation_is_no_result(
    api: FakeApi, refunds: Runner, files: dict[str, str], answer: tuple[int, Any], code: int, told: str
) -> None:
    api.on("POST", "/v1/policy/simulations", answer)

    ran = refunds("policy", "simulate", files["new"])

    assert (ran.code, ran.out) == (code, "") and told in ran.err


# --- simulating a file -------------------------------------------------------------------------------------------------------------------

HEAD = "id,at,amount,currency,reason,delivered_at"
ROWS = (
    "a,2026-05-01T10:00:00Z,40.00,USD,product_issue,2026-04-28",
    "b,2026-05-01T10:00:00Z,80.00,USD,,2026-04-28",
    'c,2026-05-01,"1,000.00",USD,product_issue,2026-04-28',
    "d,2026-05-01,15000,JPY,product_issue,",
)


def judged(refunds: Runner, tmp_path: Path, *lines: str, more: tuple[str, ...] = ()) -> tuple[dict[str, Any], str]:
    (tmp_path / "r.csv").write_text("\n".join(lines) + "\n", encoding="utf-8", errors="surrogateescape")
    ran = refunds("policy", "simulate", "new.yaml", "--against", "old.yaml", "--csv", "r.csv", "--json", *more)
    assert ran.code == 0, ran.err
    return json.loads(ran.out), ran.err


def test_requests_of_a_file_are_judged_here_and_sent_to_nobody(
    api: FakeApi, refunds: Runner, files: dict[str, str], tmp_path: Path
) -> None:
    found, _ = judged(refunds, tmp_path, HEAD, *ROWS)

    assert api.calls == []
    assert (found["requests"], found["changed"], found["left_out"]) == (4, 1, [])
    [one] = found["changed_requests"]
    assert (one["id"], one["amount"], one["before"]["way"], one["after"]["way"]) == ("b", 8_000, "automatic", "reviewer")
    assert found["outcomes"]["manager"] == {"before": 1, "after": 1}
    assert "payment.dispute" in found["assumed"] and "order.delivered_at" not in found["assumed"]


UNREADABLE = [
    ("x,yesterday,1.00,USD,,", ", column at: it is no time"),
    ("x,2026-05-01,1.005,USD,,", ", column amount: "),
    ("x,2026-05-01,1.00,usd,,", ", column currency: this currency cannot be refunded here"),
    ("x,2026-05-01,-1.00,USD,,", ", column amount: "),
    ("x,2026-05-01,1.00,USD,because,", ", column reason: it is none of"),
    ("x,2026-05-01,1.00,USD", ": it has 4 cells and the first line 6"),
    ("x,2026-05-01,1.00,USD,,2026-05-01T10:00:00", ", column delivered_at: it is no time"),
    ("x,,1.00,USD,,", ", column at: it is no time"),
    ("x,2026-05-01,,USD,,", ", column amount: it is empty"),
    ("x\udcff,2026-05-01,1.00,USD,,", ", column id: it is too long or holds characters that are no text"),
    ('x,2026-05-01,1.00,USD,,"open', ": the row is no CSV"),
    ("x,9999-12-31T23:59:59Z,1.00,USD,,", ", column at: it is too early or too late. Write a year from 1970 to 2999"),
]


def test_a_row_that_cannot_be_read_is_named_by_line_and_column_and_no_other_is_lost(
    refunds: Runner, files: dict[str, str], tmp_path: Path
) -> None:
    lines = [HEAD, ROWS[0], *(row for row, _ in UNREADABLE), *ROWS[1:]]

    found, said = judged(refunds, tmp_path, *lines)

    told = [line for line in said.splitlines() if line.startswith("r.csv: ")]
    assert len(told) == len(UNREADABLE)
    for at, (line, (_, words)) in enumerate(zip(told, UNREADABLE, strict=True), 3):
        assert line.startswith(f"r.csv: line {at}{words}"), line
    assert (found["requests"], found["left_out"][0]["requests"]) == (len(ROWS), len(UNREADABLE))
    assert found["left_out"][0]["examples"] == [f"line {number}" for number in range(3, 8)]


@pytest.mark.parametrize(
    ("head", "told"),
    [
        ("id,amount,currency", "the column at is missing"),
        ("at,amount", "the column currency is missing"),
        ("at,amount,currency,colour", "column 4: colour is no fact. Known are:"),
        ("at,amount,currency,reason,request.reason", "request.reason is there twice"),
        ("", "is missing"),
        ("x" * 140_000, "line 1 names no columns"),
    ],
)
def test_a_first_line_that_names_no_facts_is_refused(refunds: Runner, files: dict[str, str], tmp_path: Path, head: str, told: str) -> None:
    (tmp_path / "r.csv").write_text(f"{head}\n1,2,3\n")

    ran = refunds("policy", "simulate", "new.yaml", "--against", "old.yaml", "--csv", "r.csv")

    assert (ran.code, ran.out) == (2, "") and told in ran.err


def test_many_rows_that_cannot_be_read_are_counted(refunds: Runner, files: dict[str, str], tmp_path: Path) -> None:
    found, said = judged(refunds, tmp_path, HEAD, *["x,never,1.00,USD,,"] * 30, ROWS[0])

    assert (found["requests"], found["left_out"][0]["requests"]) == (1, 30)
    assert said.count("it is no time") == 20 and "10 more rows cannot be read" in said


def test_the_version_in_force_is_fetched_when_none_is_named(api: FakeApi, refunds: Runner, files: dict[str, str], tmp_path: Path) -> None:
    api.on("GET", "/v1/policy", (200, version(3)))
    (tmp_path / "r.csv").write_text(f"{HEAD}\n{ROWS[1]}\n")

    ran = refunds("policy", "simulate", files["new"], "--csv", "r.csv")

    assert [path for _, path, _, _ in api.calls] == ["/v1/policy"]
    assert "as version 3 judges them, 1 would go otherwise under new.yaml" in ran.out


@pytest.mark.parametrize(
    ("kept", "shown"), [(1, "version 1"), (7, "version 1, with the return rules of version 7 the order was placed under")]
)
def test_a_refund_says_whose_return_rules_its_order_kept(api: FakeApi, refunds: Runner, kept: int, shown: str) -> None:
    rules = {"version": kept, "hash": "h", "because": "placed"}
    seen = refund(policy={"version": 1, "hash": "h", "checks": [], "return_rules": rules})
    api.on("GET", f"/v1/refunds/{seen['id']}", (200, seen))

    words = " ".join(refunds("show", seen["id"]).out.split())

    assert f"policy {shown}" in words
    assert ("return rules of" in words) is (kept != 1)
