"""What a simulation came to, for people: a sentence, tables, and bars of before and after."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from cli.output import Output
from refunds.money import CURRENCIES, Money, format_money
from refunds.policy.simulation import Direction, Way

BAR = 40
"""The longest bar, in characters."""
_BEFORE, _AFTER = "░", "█"
_SAME_CHECKS = "its ladder or tier"


def show(out: Output, result: Mapping[str, Any], changed: Sequence[Mapping[str, Any]], *, most: int, kept_in: str) -> None:
    """The whole result. ``changed`` are the requests that would have gone otherwise, of which the first ``most`` are listed; ``kept_in`` names a file with all."""
    out.text(headline(result))
    for line in _left_out(result):
        out.text(line)
    if not result["requests"]:
        return
    out.heading("How requests go")
    out.text("\n".join(bars(result["outcomes"])))
    if not result["changed"]:
        return
    out.heading("What would change")
    moves = [(Way(move["before"]).words, to(move), move["requests"], _amounts(move["amounts"])) for move in result["moves"]]
    out.table(("from", "to", "requests", "amount"), moves, fold="amount")
    out.heading("By tier, of those that are not denied")
    out.table(("tier", "before", "after", "change"), [(tier, *_counts(both)) for tier, both in result["tiers"].items()])
    out.heading("By amount")
    out.table(
        ("currency", "way", "before", "after", "change"),
        [
            (code, Way(way).words, *(_money(both[at], code) for at in ("before", "after")), _signed_money(both, code))
            for code, ways in result["amounts"].items()
            for way, both in ways.items()
        ],
    )
    out.heading("By reason of the request")
    _by(out, "reason", result["reasons"])
    out.heading("By the checks that made the difference")
    _by(out, "check", result["checks"])
    _list(out, result, changed, most, kept_in)


def headline(result: Mapping[str, Any]) -> str:
    """The result in one sentence."""
    before, after = (_named(result[name]) for name in ("before", "after"))
    if not result["requests"]:
        return f"No request could be judged under {before} and {after}."
    parts = ", ".join(f"{result[direction.value]:,} {direction.value}" for direction in Direction if result[direction.value])
    change = (
        f"{result['changed']:,} would go otherwise under {after} ({parts})" if result["changed"] else f"all would go the same under {after}"
    )
    return f"Of {result['requests']:,} requests as {before} judges them, {change}."


def to(move: Mapping[str, str]) -> str:
    """Where a request would have gone. Within one way something else is different: who is asked, until when, or with which evidence."""
    words = Way(move["after"]).words
    return f"{words}, but otherwise" if move["before"] == move["after"] else words


def bars(outcomes: Mapping[str, Mapping[str, int]]) -> Iterator[str]:
    """A picture for the terminal: for each way two bars to one scale, of before and after. A count above nothing is never an empty bar."""
    shown = {way: both for way, both in outcomes.items() if both["before"] or both["after"]}
    most = max((max(both.values()) for both in shown.values()), default=0)
    width = max((len(Way(way).words) for way in shown), default=0)
    for way, both in shown.items():
        for at, sign in (("before", _BEFORE), ("after", _AFTER)):
            name = Way(way).words if at == "before" else ""
            yield f"{name:<{width}}  {at:<6}  {sign * -(-both[at] * BAR // most)} {both[at]:,}"


def _left_out(result: Mapping[str, Any]) -> Iterator[str]:
    for left in result["left_out"]:
        examples = f" (such as {', '.join(left['examples'])})" if left["examples"] else ""
        yield f"Left out: {left['requests']:,}, {left['why']}{examples}."
    if limits := result["limits_taken_to_have_room"]:
        most = max(limits.values())
        yield f"Nothing was recorded of the limits {', '.join(limits)} with up to {most:,} of them; there they are taken to have room."
    if parts := result.get("parts_of_groups"):
        yield f"{parts:,} of them are parts of groups; each was judged by itself here."
    if assumed := result.get("assumed"):
        yield f"Not in the file, and taken as in order: {', '.join(assumed)}."


def _list(out: Output, result: Mapping[str, Any], changed: Sequence[Mapping[str, Any]], most: int, kept_in: str) -> None:
    out.heading(f"Requests that would go otherwise ({min(most, result['changed']):,} of {result['changed']:,})")
    rows = [
        (
            one["id"],
            _money(one["amount"], one["currency"]),
            one["reason"],
            Way(one["before"]["way"]).words,
            to({"before": one["before"]["way"], "after": one["after"]["way"]}),
            one["direction"],
            ", ".join(one["checks"]) or _SAME_CHECKS,
        )
        for one in changed[:most]
    ]
    out.table(("request", "amount", "reason", "before", "after", "change", "because of"), rows, fold="because of")
    if kept_in:
        out.say(f"All of them are in {kept_in}.")
    elif result["changed"] > most:
        out.say("To keep all of them: --changed FILE.csv")


def _by(out: Output, name: str, found: Mapping[str, Mapping[str, int]]) -> None:
    columns = list(next(iter(found.values()), {}))
    out.table((name, *columns), [(key, *counts.values()) for key, counts in found.items()])


def _named(version: Mapping[str, Any]) -> str:
    return f"version {version['version']}" if version.get("version") else str(version.get("name") or "the file")


def _counts(both: Mapping[str, int]) -> tuple[str, str, str]:
    return f"{both['before']:,}", f"{both['after']:,}", f"{both['after'] - both['before']:+,}"


def _money(amount: int, code: str) -> str:
    return format_money(Money(amount, code)) if code in CURRENCIES else f"{amount} {code}"


def _signed_money(both: Mapping[str, int], code: str) -> str:
    change = both["after"] - both["before"]
    return ("+" if change > 0 else "-" if change < 0 else "") + _money(abs(change), code)


def _amounts(amounts: Mapping[str, int]) -> str:
    return ", ".join(_money(amount, code) for code, amount in amounts.items())
