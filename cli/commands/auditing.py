"""``refunds audit``: the whole chain behind one refund, as a page to read."""

from cli import audit_view
from cli.client import Api, segment
from cli.options import Json, RefundId
from cli.output import Output


def audit(refund: RefundId, as_json: Json = False) -> None:
    """Show everything on record about one refund: who said what, what decided, what was sent and answered, and the entries that prove it."""
    out = Output(as_json)
    with Api() as api:
        found = api.get(f"/v1/refunds/{segment(refund)}/audit")
    if as_json:
        out.json(found)
    else:
        audit_view.show(out, found)
