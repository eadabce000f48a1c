"""What leaves a step that failed: its kind and a fixed word, never what the error says (promise P9).

Temporal keeps the message, the causes and the stack of a failed activity in the history, where operators read it for months; and messages of databases and
processors repeat parameters, rows and keys.
"""

import traceback
from typing import Any

from temporalio import activity
from temporalio.exceptions import ApplicationError, CancelledError
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor

from refunds.errors import RefundError
from refunds.logs import logger

log = logger(__name__)


class Discretion(Interceptor):
    """Reduces every error of an activity on its way out."""

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
        """Wrap the activity."""
        return _Discreet(next)


class _Discreet(ActivityInboundInterceptor):
    async def execute_activity(self, input: ExecuteActivityInput) -> Any:
        try:
            return await self.next.execute_activity(input)
        except (ApplicationError, CancelledError):
            raise  # ours, made of fixed words
        except Exception as error:  # noqa: BLE001 - whatever it is: nothing of what it says may travel, and it is raised again as what it may say
            word = error.code.value if isinstance(error, RefundError) else type(error).__name__
            places = [f"{frame.filename}:{frame.lineno}" for frame in traceback.extract_tb(error.__traceback__)][-6:]
            log.error("step_failed", step=activity.info().activity_type, error=word, places=places, attempt=activity.info().attempt)
            raise ApplicationError(word, type=type(error).__name__) from None
