"""The ``refunds`` command: a thin client of the API, and the launcher of the local stack."""

import sys
from typing import Any

import typer
from typer.core import TyperGroup

from cli.commands import (
    access,
    acting,
    auditing,
    controls,
    customers,
    delegations,
    groups,
    ledger,
    legs,
    orders,
    policy,
    rates,
    reading,
    reconciling,
    reviewing,
    stack,
)
from cli.output import Output
from cli.problems import Problem, misuse, plainly
from refunds.errors import RefundError

_HELP = """Durable, human-approved, exactly-once refunds.

The API is found through REFUNDS_API_URL, or the local stack's files (.local, or REFUNDS_HOME); the key is REFUNDS_API_KEY, or the first administrator's.
"""
_EXIT_CODES = """Exit codes: 0 done; 1 the API refused, or the demo went otherwise than expected; 2 the command cannot be carried out as written;
3 nothing answered; 4 not confirmed, nothing was sent."""


class _Plainly(TyperGroup):
    """Says what is wrong with an argument without the words that a library puts before it."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command that is named."""
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            error.message = plainly(error.message)
            raise


app = typer.Typer(
    name="refunds",
    cls=_Plainly,
    help=_HELP,
    epilog=_EXIT_CODES,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command()(stack.up)
app.command()(stack.config)
app.command()(stack.migrate)
app.command()(stack.demo)
app.command("list")(reading.list_refunds)
app.command()(reading.show)
app.command()(auditing.audit)
for _command in (acting.approve, acting.deny, acting.revise, acting.consent, acting.settle, acting.withdraw):
    app.command()(_command)
app.command()(reviewing.assign)
app.command()(reviewing.attach)
app.command()(legs.settle_leg)
for _command in (controls.stop, controls.resume, controls.mode, controls.controls):
    app.command()(_command)
for _command in (reconciling.reconcile, reconciling.reconciliations, reconciling.restored):
    app.command()(_command)
app.command()(customers.forget)
app.command()(customers.export)
app.add_typer(customers.retention, name="retention")
app.add_typer(ledger.ledger, name="ledger")
app.add_typer(reconciling.discrepancies, name="discrepancies")
app.add_typer(groups.groups, name="groups")
app.add_typer(orders.orders, name="orders")
app.add_typer(access.people, name="people")
app.add_typer(access.keys, name="keys")
app.add_typer(delegations.delegations, name="delegations")
app.add_typer(policy.policy, name="policy")
app.add_typer(rates.rates, name="rates")


def main() -> None:
    """Run the command that the arguments name, and exit with its code (``cli.problems.Exit``)."""
    try:
        app()
    except (Problem, RefundError) as error:
        problem = misuse(error) if isinstance(error, RefundError) else error
        if problem.line:
            Output().say(problem.line)
        sys.exit(problem.exit_code)


if __name__ == "__main__":
    main()
