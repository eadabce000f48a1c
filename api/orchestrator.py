"""Temporal, as the API uses it: starts runs, tells them to look, and never waits longer than it was allowed to.

Nothing here decides anything: what counts is stored first, and what cannot be delivered now is delivered later by the worker's sweep. So every method
answers "not now" instead of raising when Temporal or the workers are away.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from temporalio import common
from temporalio.client import Client, WorkflowFailureError, WorkflowUpdateFailedError, WorkflowUpdateRPCTimeoutOrCancelledError
from temporalio.envconfig import ClientConfig
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode

from refunds.ids import Prefix, new_id, pull_workflow_id, reconciliation_workflow_id, workflow_id
from refunds.logs import logger
from refunds.messages import (
    PULL_WORKFLOW,
    QUEUE_REFUNDS,
    READING_WORKFLOW,
    RECONCILIATION_WORKFLOW,
    WITH_FLOW,
    WORKFLOW_TYPE,
    Message,
    Outcome,
    PullInput,
    ReconciliationInput,
    RefundInput,
    StepInput,
)

Connect = Callable[[], Awaitable[Client]]
PAUSE_AFTER_FAILURE_S = 1.0
"""How long calls are answered without trying, after Temporal could not be reached."""

_log = logger(__name__)
_STATUS = common.SearchAttributeKey.for_keyword("RefundStatus")
_CURRENCY = common.SearchAttributeKey.for_keyword("RefundCurrency")
_AMOUNT = common.SearchAttributeKey.for_int("RefundAmount")
_ORDER = common.SearchAttributeKey.for_keyword("RefundOrder")
_PAYMENT = common.SearchAttributeKey.for_keyword("RefundPayment")


async def from_environment() -> Client:
    """A client by Temporal's standard environment configuration, read strictly. It connects at its first use, so Temporal may be down now.

    Raises ``RuntimeError`` for a configuration that cannot be read.
    """
    config = ClientConfig.load_client_connect_config(config_file_strict=True)
    config.setdefault("target_host", "127.0.0.1:7233")
    return await Client.connect(**config, lazy=True)


@dataclass(frozen=True, slots=True)
class Beginning:
    """What is known of a refund when its run starts: our own surrogates and figures, nothing personal."""

    refund: str
    status: str
    summary: str
    currency: str | None = None
    amount: int | None = None
    order: str | None = None
    payment: str | None = None

    def attributes(self) -> common.TypedSearchAttributes:
        """The search attributes that can be set from the start."""
        pairs: list[common.SearchAttributePair] = [common.SearchAttributePair(_STATUS, self.status)]
        named = ((_CURRENCY, self.currency), (_ORDER, self.order), (_PAYMENT, self.payment))
        pairs += [common.SearchAttributePair(key, value) for key, value in named if value]
        if self.amount is not None:
            pairs.append(common.SearchAttributePair(_AMOUNT, self.amount))
        return common.TypedSearchAttributes(pairs)


class Orchestrator:
    """One client, shared by all calls of the process."""

    def __init__(self, client: Client, ui_url: str) -> None:
        self._client = client
        self._ui_url = ui_url.rstrip("/")
        self._quiet_until = 0.0

    def link(self, refund_id: str) -> str:
        """Where the refund's run is shown."""
        return f"{self._ui_url}/namespaces/{self._client.namespace}/workflows/{workflow_id(refund_id)}"

    async def start(self, beginning: Beginning, *, within_s: float) -> bool:
        """Start the refund's run unless it runs or ran already; ``False`` when Temporal cannot be reached (the sweep starts it later)."""

        async def call() -> None:
            await self._client.start_workflow(
                WORKFLOW_TYPE,
                RefundInput(beginning.refund),
                id=workflow_id(beginning.refund),
                task_queue=QUEUE_REFUNDS,
                id_reuse_policy=common.WorkflowIDReusePolicy.REJECT_DUPLICATE,
                id_conflict_policy=common.WorkflowIDConflictPolicy.USE_EXISTING,
                static_summary=beginning.summary,
                search_attributes=beginning.attributes(),
            )

        return await self._try("start", beginning.refund, call, within_s, done_when=(WorkflowAlreadyStartedError,))

    async def signal(self, refund_id: str, name: str, message: Message, *, within_s: float) -> bool:
        """Send a signal; ``False`` when it could not be delivered now."""
        handle = self._client.get_workflow_handle(workflow_id(refund_id))
        return await self._try(f"signal {name}", refund_id, lambda: handle.signal(name, message), within_s)

    async def update(self, refund_id: str, name: str, message: Message, *, within_s: float) -> Outcome | None:
        """Run an update to its end and return its outcome, or ``None`` when there is none in time. Repeated, it gets the first one's answer."""
        handle = self._client.get_workflow_handle(workflow_id(refund_id))
        answers: list[Outcome] = []

        async def call() -> None:
            answers.append(await handle.execute_update(name, message, id=message.id, result_type=Outcome))

        await self._try(f"update {name}", refund_id, call, within_s)
        return answers[0] if answers else None

    async def read_payment(self, payment_id: str, *, with_flow: bool, within_s: float) -> bool:
        """Have the payments role read a payment from the processor, and where its money went; ``False`` when that was not done in time."""

        async def call() -> None:
            await self._client.execute_workflow(
                READING_WORKFLOW,
                StepInput(refund="", message=payment_id, detail=WITH_FLOW if with_flow else ""),
                id=f"payment-reading-{new_id(Prefix.TICKET)}",
                task_queue=QUEUE_REFUNDS,
            )

        return await self._try("read payment", payment_id, call, within_s)

    async def reconcile(self, run_id: str, *, within_s: float) -> bool:
        """Start the workflow of a stored reconciliation; ``False`` when Temporal cannot be reached (the payments role starts it later)."""

        async def call() -> None:
            await self._client.start_workflow(
                RECONCILIATION_WORKFLOW,
                ReconciliationInput(run=run_id),
                id=reconciliation_workflow_id(run_id),
                task_queue=QUEUE_REFUNDS,
                id_conflict_policy=common.WorkflowIDConflictPolicy.USE_EXISTING,
                static_summary="Reconcile with the processor",
            )

        return await self._try("reconcile", run_id, call, within_s)

    async def pull_orders(self, pull_id: str, *, within_s: float) -> bool:
        """Start the workflow of a stored pull of orders; ``False`` when Temporal cannot be reached (the payments role starts it later)."""

        async def call() -> None:
            await self._client.start_workflow(
                PULL_WORKFLOW,
                PullInput(pull_id),
                id=pull_workflow_id(pull_id),
                task_queue=QUEUE_REFUNDS,
                id_conflict_policy=common.WorkflowIDConflictPolicy.USE_EXISTING,
                static_summary="Pull the merchant's orders from the processor's payments",
            )

        return await self._try("pull orders", pull_id, call, within_s)

    async def reachable(self, *, within_s: float) -> bool:
        """Whether Temporal answers."""

        async def call() -> None:
            await self._client.service_client.check_health()

        return await self._try("health", "", call, within_s, even_if_quiet=True)

    async def _try(
        self,
        what: str,
        subject: str,
        call: Callable[[], Awaitable[None]],
        within_s: float,
        *,
        done_when: tuple[type[Exception], ...] = (),
        even_if_quiet: bool = False,
    ) -> bool:
        if time.monotonic() < self._quiet_until and not even_if_quiet:
            return False
        try:
            async with asyncio.timeout(within_s):
                await call()
        except done_when:
            return True
        except (TimeoutError, WorkflowUpdateRPCTimeoutOrCancelledError):
            _log.warning("not_delivered_in_time", what=what, subject=subject)
        except (WorkflowUpdateFailedError, WorkflowFailureError) as error:
            _log.warning("refused_by_run", what=what, subject=subject, error=type(error.__cause__).__name__)
        except RPCError as error:
            _log.warning("not_delivered", what=what, subject=subject, status=error.status.name)
            if error.status is RPCStatusCode.UNAVAILABLE:
                self._quiet_until = time.monotonic() + PAUSE_AFTER_FAILURE_S
        except RuntimeError:  # what a client that could not connect raises
            _log.warning("orchestrator_unreachable", what=what, subject=subject)
            self._quiet_until = time.monotonic() + PAUSE_AFTER_FAILURE_S
        else:
            self._quiet_until = 0.0
            return True
        return False
