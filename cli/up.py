"""``refunds up``: the local stack in the foreground, and a line that makes another terminal ready for it."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from cli.connection import exports
from cli.output import Output
from deploy.local import processes, stack
from deploy.local.accounts import NoAccountError
from deploy.local.ports import NoPortError
from deploy.local.postgres import PostgresError
from deploy.local.progress import ConsoleReporter
from deploy.local.temporal import TemporalMissingError

CANNOT_RUN = (stack.PartFailedError, NoAccountError, NoPortError, PostgresError, TemporalMissingError)
"""Why a stack does not start or has to end; each says in its own words what to do."""


def run(parts: Sequence[str] | None) -> int:
    """Run the stack until Ctrl-C or SIGTERM; the exit code. One that already runs in this home is shown, and nothing is started."""
    out, reporter = Output(), ConsoleReporter()
    local = stack.LocalStack(stack.default_home(), parts=parts, reporter=reporter)
    with processes.interruptible():
        try:
            with local:
                _tell(out, local.addresses)
                out.text("Ctrl-C stops everything in order.")
                local.wait()
        except KeyboardInterrupt:
            reporter.end()
            out.text("Stopped.")
        except stack.AlreadyRunningError as running:
            out.text(str(running))
            _tell(out, running.state.get("addresses", {}))
        except CANNOT_RUN as failure:
            reporter.end()
            out.say(str(failure))
            return 1
    return 0


def _tell(out: Output, addresses: Mapping[str, str]) -> None:
    out.fields(list(addresses.items()))
    ready = {name: addresses[part] for name, part in (("API", "api"), ("SANDBOX", "sandbox")) if part in addresses}
    if elsewhere := os.environ.get("REFUNDS_HOME"):
        ready["REFUNDS_HOME"] = str(Path(elsewhere).absolute())
    out.text(f"\nReady. In another terminal:\n\n{exports(**ready)}\n")
