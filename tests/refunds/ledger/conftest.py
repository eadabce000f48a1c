"""REFUNDS_C2SP_PYTHON names a Python (3.12 or later) that has the public package ``aics-tlog``; when it is set, that judges our checkpoints and proofs."""

import os
from typing import Any

PYTHON = "REFUNDS_C2SP_PYTHON"
collect_ignore = [] if os.environ.get(PYTHON) else ["test_public_parser.py"]


def pytest_terminal_summary(terminalreporter: Any) -> None:
    if not os.environ.get(PYTHON):
        terminalreporter.write_line(
            f"not run: a public implementation did not parse our checkpoints (the published notes of others were); set {PYTHON}"
        )
