"""Exchange rates: what amounts of each currency count as where a limit counts all currencies together."""

from typing import Annotated, Any

import typer

from cli.client import Api
from cli.options import Json, Yes, confirm, past
from cli.output import Output
from refunds.money import currency as known
from refunds.rates import Rate

rates = typer.Typer(help="Exchange rates for limits that count all currencies together.", no_args_is_help=True)

Base = Annotated[str | None, typer.Option("--base", metavar="CODE", help="In which currency; the policy's base currency by default.")]


@rates.command("set")
def set_rate(
    currency: Annotated[str, typer.Argument(metavar="CURRENCY", help="Its three-letter code, such as EUR.")],
    rate: Annotated[str, typer.Argument(metavar="RATE", help="What one of it is worth in the base currency, such as 1.0834.")],
    source: Annotated[str, typer.Option("--source", help="Where the rate is from; it is recorded.")],
    base: Base = None,
    since: Annotated[
        str | None,
        typer.Option(
            "--since", metavar="WHEN", help="Since when it holds: 2d, 36h, 2026-09-01 (UTC), or an RFC 3339 time; now by default."
        ),
    ] = None,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Record a rate. It is shown back with an example and with the rate before, and is never edited afterwards: a newer one replaces it."""
    out = Output(as_json)
    code = known(currency).code
    with Api() as api:
        known_rates = api.get("/v1/rates", currency=code, base=None if base is None else known(base).code)
        in_base = known(base).code if base is not None else known_rates["base_currency"]
        if in_base is not None:
            meant = Rate(in_base, code, rate)
            before = next((one for one in known_rates["rates"] if one["base"] == in_base), None)
            out.say(f"{meant.shown()}.")
            out.say(f"Before: {before['shown']} (since {before['effective_at']})." if before else "There is no such rate yet.")
            confirm(out, f"Record {meant}?", yes=yes)
        body = {
            "currency": code,
            "rate": rate,
            "source": source,
            "base": in_base,
            "effective_at": past(since, "--since") if since else None,
        }
        answer = api.put("/v1/rates", {name: value for name, value in body.items() if value is not None})
    if as_json:
        out.json(answer)
    else:
        out.fields([(name.replace("_", " "), answer.get(name)) for name in ("id", "shown", "effective_at", "source")])


@rates.command("list")
def list_rates(
    currency: Annotated[str | None, typer.Option("--currency", metavar="CODE", help="Only this currency.")] = None,
    base: Base = None,
    history: Annotated[bool, typer.Option("--history", help="Every rate there ever was, not only those that hold.")] = False,
    as_json: Json = False,
) -> None:
    """List the rates that hold, who recorded each and where it is from, and the currencies of the policy that one is missing for."""
    out = Output(as_json)
    filters: dict[str, Any] = {"currency": currency and known(currency).code, "base": base and known(base).code}
    with Api() as api:
        answer = api.get("/v1/rates", history="true" if history else None, **filters)
        found, cursor = answer["rates"], answer["next_cursor"]
        while cursor is not None:
            page = api.get("/v1/rates", history="true" if history else None, cursor=cursor, **filters)
            found, cursor = found + page["rates"], page["next_cursor"]
    if as_json:
        out.json(answer | {"rates": found, "next_cursor": None})
        return
    columns = ("currency", "rate", "base", "effective_at", "recorded_by", "source")
    rows = [[one["recorded_by"]["handle"] if name == "recorded_by" else one[name] for name in columns] for one in found]
    out.table([name.replace("_", " ") for name in columns], rows, fold="source")
    if answer["base_currency"] is None:
        out.say("The policy in force names no base_currency: a second currency on one day means that a person looks.")
    elif answer["missing"]:
        days, base_currency = answer["rates_at_most_days_old"], answer["base_currency"]
        out.say(
            f"No rate in {base_currency} that is at most {days} days old: {', '.join(answer['missing'])}. A person looks at their refunds."
        )
