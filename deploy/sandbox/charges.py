"""Which charge of a payment is meant."""

from deploy.sandbox.errors import no_such
from deploy.sandbox.objects import Body
from deploy.sandbox.params import reject_unknown
from deploy.sandbox.state import State
from deploy.sandbox.work import Call


def of_intent(state: State, intent: Body) -> str | None:
    """The charge of a PaymentIntent that took money; the latest one where none did.

    There are several where attempts failed, and the latest one need not be the one that was captured.
    """
    latest = None if intent["latest_charge"] is None else state.get("charge", intent["latest_charge"])
    if latest is None or latest["captured"]:
        return intent["latest_charge"]
    taken = [charge["id"] for charge in state.every("charge", payment_intent=intent["id"]) if charge["captured"]]
    return taken[0] if taken else intent["latest_charge"]


def retrieve(call: Call) -> Body:
    """GET /v1/charges/{charge}."""
    reject_unknown(call.params, ("expand",))
    charge = call.state.get("charge", call.args[0])
    if charge is None:
        raise no_such("charge", call.args[0], param="id")
    return charge
