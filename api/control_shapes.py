"""The shapes of what stops refunds and lets them go on."""

from typing import Annotated, Literal

from pydantic import AwareDatetime, Field

from api.limit_shapes import BreakerView
from api.shapes import Shape


class HaltView(Shape):
    """One reason why a scope is halted, as long as it is in force."""

    id: str
    code: str
    reason: str
    opened_by: str | None = Field(description="Who halted it; null when the orchestrator did.")
    opened_by_handle: str | None
    opened_at: AwareDatetime


class ControlView(Shape):
    """The state of one scope: everything, agents, agent:<handle> or processor:<name>."""

    scope: str
    state: Literal["stopped", "running"]
    stopped: bool
    mode: Literal["live", "draft"] | None = Field(description="Of everything; another scope has none.")
    code: str | None = Field(description="Why it is halted.")
    reason: str
    changed_by: str | None = Field(description="Who changed it last; null when the orchestrator did.")
    changed_by_handle: str | None
    changed_at: AwareDatetime | None
    stopped_by: str | None = Field(
        description="Whose the stop is: another person has to resume it. Null when it runs, or the orchestrator halted it."
    )
    stopped_by_handle: str | None
    stopped_at: AwareDatetime | None
    stop_reason: str | None
    halts: list[HaltView] = Field(description="Everything that halts exactly this scope, beside the emergency stop of everything.")


class ControlList(Shape):
    """Everything, each processor, and every other scope that is stopped. ``moves_money`` is false in test mode, in which none ever does."""

    moves_money: bool
    controls: list[ControlView]
    breakers: Annotated[list[BreakerView], Field(description="Every breaker that is not closed, the oldest first.")]


class CallInFlight(Shape):
    """A call to the processor that had started before the stop. ``confirmed`` once its end is known."""

    attempt: str
    refund: str
    opened_at: AwareDatetime
    send_by: AwareDatetime
    confirmed: bool
    may_still_send: bool


class ControlChanged(ControlView):
    """The new state; at a stop the calls that had started, at a resume how many held refunds were woken."""

    calls_in_flight: list[CallInFlight]
    resumed: int
