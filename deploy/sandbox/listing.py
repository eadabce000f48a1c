"""Lists: limit, starting_after / ending_before, created filters, has_more."""

from deploy.sandbox.errors import invalid, no_such
from deploy.sandbox.objects import Body
from deploy.sandbox.params import integer, text
from deploy.sandbox.state import Page
from deploy.sandbox.truth import RETURNED
from deploy.sandbox.work import Call

LIST_PARAMETERS = frozenset({"limit", "starting_after", "ending_before", "expand"})
LARGEST_PAGE = 100


def _created(call: Call) -> dict[str, int]:
    given = call.params.get("created")
    if given is None:
        return {}
    if isinstance(given, str):
        at = integer(call.params, "created")
        return {} if at is None else {"gte": at, "lte": at}
    bounds: dict[str, int] = {}
    for name in given:
        if name not in ("gt", "gte", "lt", "lte"):
            raise invalid(f"Received unknown parameter: created[{name}]", code="parameter_unknown", param=f"created[{name}]")
        bound = integer(given, name)
        if bound is not None:
            bounds[name] = bound
    return bounds


def _cursor(call: Call, kind: str, noun: str, name: str) -> tuple[int, int] | None:
    object_id = text(call.params, name)
    if object_id is None:
        return None
    position = call.state.position(kind, object_id)
    if position is None:
        raise no_such(noun, object_id, param=name, status=400)
    return position


def listed(call: Call, kind: str, url: str, links: dict[str, str | list[str]], *, noun: str | None = None, counted: bool = False) -> Body:
    """One page, newest first. `counted` adds the undocumented `count` that refund and dispute lists carry (recorded)."""
    if "starting_after" in call.params and "ending_before" in call.params:
        raise invalid("Received both starting_after and ending_before parameters. Please pass in only one.")
    limit = integer(call.params, "limit", least=1, most=LARGEST_PAGE)
    page = Page(
        limit=10 if limit is None else limit,
        after=_cursor(call, kind, noun or kind, "starting_after"),
        before=_cursor(call, kind, noun or kind, "ending_before"),
        created=_created(call),
    )
    data, more = ([], False) if kind in RETURNED and call.hide_refunds else call.state.page(kind, links, page)
    answer: Body = {"object": "list"}
    if counted:
        answer["count"] = len(data)
    answer.update(data=data, has_more=more, url=url)
    return answer
