"""The merchant's orders."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from cli.client import Api, segment
from cli.commands.importing import import_orders
from cli.commands.pulling import pull_orders, pulled_orders
from cli.options import File, Json
from cli.output import Output
from cli.problems import Misused

orders = typer.Typer(help="The merchant's orders.", no_args_is_help=True)
orders.command("import")(import_orders)
orders.command("pull")(pull_orders)
orders.command("pulled")(pulled_orders)


@orders.command("put")
def put_orders(file: File, as_json: Json = False) -> None:
    """Send orders: a JSON file with one order, or a list of them, each with its ``order_id`` beside the fields of the API."""
    out = Output(as_json)
    given = _read_json(file)
    wanted = given if isinstance(given, list) else [given]
    for index, order in enumerate(wanted):
        if not isinstance(order, dict) or not isinstance(order.get("order_id"), str) or not order["order_id"]:
            raise Misused(f"{file}: order {index + 1} needs an order_id.")
    with Api() as api:
        answers = [
            api.put(f"/v1/orders/{segment(order['order_id'])}", {k: v for k, v in order.items() if k != "order_id"}) for order in wanted
        ]
    if as_json:
        out.json(answers)
    else:
        out.table(("order", "version"), [(answer["order_id"], answer["version"]) for answer in answers])


@orders.command("show")
def show_order(order: Annotated[str, typer.Argument(metavar="ORDER")], as_json: Json = False) -> None:
    """Show an order as it is recorded."""
    with Api() as api:
        answer = api.get(f"/v1/orders/{segment(order)}")
    out = Output(as_json)
    if as_json:
        out.json(answer)
        return
    out.fields([(name, answer.get(name)) for name in ("order_id", "id", "version", "updated_at")])
    rows = [(p["payment_id"], p["currency"], (p.get("tender") or p.get("processor") or "").replace("_", " ")) for p in answer["payments"]]
    out.table(("payment", "currency", "goes back by"), rows)


def _read_json(file: Path) -> Any:
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise Misused(f"{file} is not JSON: {error}.") from error
