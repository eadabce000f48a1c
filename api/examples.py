"""Examples of bodies, for the description: written by hand where the values say something, otherwise the least that fits the schema.

The tests hold every one against its schema and against the model that will read it.
"""

from collections.abc import Mapping
from typing import Any

_HASH = "5b1f0c0c4a5e3d7a9e7c5a1d2f3b4c6d8e9fa0b1c2d3e4f5061728394a5b6c7d"
_AUTHENTICATION = {"method": "password", "at": "2026-03-01T12:00:00Z"}
_ORDER = {
    "customer_id": "c-17",
    "customer_since": "2024-05-01T00:00:00Z",
    "placed_at": "2026-02-20T09:30:00Z",
    "delivered_at": "2026-02-24T15:00:00Z",
    "currency": "USD",
    "lines": [{"id": "cup", "title": "Blue cup", "quantity": 2, "amount": 5000, "tax": 400}],
    "shipping": 600,
    "payments": [{"id": "pi_7", "amount": 6000, "currency": "USD"}],
}

EXAMPLES: dict[str, Any] = {
    "RefundRequest": {
        "order_id": "A-7",
        "customer_id": "c-17",
        "amount": 2500,
        "currency": "USD",
        "reason": "product_issue",
        "requested_by": "sam",
        "channel": "email",
        "message": "One of the two cups arrived broken.",
        "customer_authentication": _AUTHENTICATION,
    },
    "GroupRequest": {
        "order_id": "A-7",
        "customer_id": "c-17",
        "amount": 6000,
        "currency": "USD",
        "reason": "product_issue",
        "requested_by": "sam",
        "customer_authentication": _AUTHENTICATION,
    },
    "GroupDecision": {"verdict": "approve", "terms": {"rf_01jna7c0m5y8qw2e4r6t8v0x3z": _HASH}, "note": "The photo shows it."},
    "GroupConsent": {"agreed": True, "terms": {"rf_01jna7c0m5y8qw2e4r6t8v0x3z": _HASH}},
    "Ticket": {
        "customer_id": "c-17",
        "message": "One of the two cups of order A-7 arrived broken, please send back 25 dollars.",
        "customer_authentication": _AUTHENTICATION,
    },
    "Decision": {"verdict": "approve", "terms_hash": _HASH, "note": "The photo shows it."},
    "RevisionRequest": {"terms_hash": _HASH, "amount": 1250, "currency": "USD", "note": "One of the two cups is whole."},
    "Consent": {"agreed": True, "terms_hash": _HASH},
    "Withdrawal": {"note": "The customer found the parcel."},
    "Settlement": {"outcome": "refunded", "processor_refund_id": "re_3Nxyz", "evidence": "Seen in the dashboard on 1 March, 25.00 USD."},
    "Order": _ORDER,
    "OrderImport": {"orders": [{"order_id": "A-7", "order": _ORDER}]},
    "ControlChange": {"state": "stopped", "reason": "Refunds of the wrong amount were seen."},
    "NewPrincipal": {"kind": "person", "handle": "rita", "name": "Rita"},
    "NewKey": {"principal_id": "pr_01JNA7C0M5Y8QW2E4R6T8V0X3Z", "roles": ["reviewer"]},
    "NewVersion": {"source": "name: Our policy\n...", "note": "Higher ceiling for returns, as agreed on 1 March."},
    "NewRate": {"currency": "EUR", "rate": "1.0834", "source": "European Central Bank"},
    "StripeEvent": {
        "id": "evt_3NxyzA",
        "object": "event",
        "type": "refund.updated",
        "api_version": "2026-08-26.dahlia",
        "created": 1772366400,
        "livemode": False,
        "data": {"object": {"id": "re_3Nxyz", "object": "refund"}},
    },
    "Judgement": {"state": "explained", "note": "Made in the dashboard for a returned gift, on purpose."},
    "Assignment": {"to": "rita", "reason": "She knows this carrier."},
    "Evidence": {"kind": "photo", "statement": "Photo 3 of the conversation shows the broken handle."},
    "NewSimulation": {"version": 2},
    "NewRun": {"since": "2026-02-27T00:00:00Z"},
    "Restored": {"reason": "Restored from the backup of 1 March, 02:00."},
}


def example_of(schema: Mapping[str, Any], schemas: Mapping[str, Any]) -> Any:
    """An example of a value of this schema; ``schemas`` are those that references name."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return EXAMPLES[name] if name in EXAMPLES else example_of(schemas[name], schemas)
    if schema.get("examples"):
        return schema["examples"][0]
    for word in ("const", "default"):
        if schema.get(word) is not None:
            return schema[word]
    if "enum" in schema:
        return schema["enum"][0]
    for word in ("anyOf", "oneOf", "allOf"):
        if word in schema:
            return example_of(schema[word][0], schemas)
    return _least(schema, schemas)


def _least(schema: Mapping[str, Any], schemas: Mapping[str, Any]) -> Any:
    match schema.get("type"):
        case "object":
            properties = schema.get("properties", {})
            return {name: example_of(properties[name], schemas) for name in schema.get("required", ())}
        case "array":
            return [example_of(schema["items"], schemas)] * schema.get("minItems", 0)
        case "integer" | "number":
            return max(schema.get("minimum", 1), 1)
        case "boolean":
            return True
        case "string":
            return "2026-03-01T12:00:00Z" if schema.get("format") == "date-time" else "text"
        case _:
            return None
