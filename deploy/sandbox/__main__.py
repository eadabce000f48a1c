"""python -m deploy.sandbox --host 127.0.0.1 --port 0 --data sandbox.sqlite"""

import argparse
import os
import sqlite3
import sys
from pathlib import Path

from deploy.sandbox.idempotency import KEEP_SECONDS
from deploy.sandbox.options import Options
from deploy.sandbox.server import serve


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m deploy.sandbox", description="A Stripe-compatible payment sandbox.")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one; the line on standard output names it")
    parser.add_argument("--data", type=Path, required=True, help="SQLite file that holds everything")
    parser.add_argument("--webhook-url", help="where events are sent")
    parser.add_argument(
        "--webhook-secret",
        default=os.environ.get("SANDBOX_WEBHOOK_SECRET", ""),
        help="whsec_...: what they are signed with; from SANDBOX_WEBHOOK_SECRET it is in no list of processes",
    )
    parser.add_argument("--webhook-lanes", type=int, default=1, help="deliveries under way at once; one keeps them in order")
    parser.add_argument("--key-seconds", type=int, default=KEEP_SECONDS, help="age at which idempotency keys are forgotten")
    parser.add_argument("--account", help="acct_...: who GET /v1/account says that the keys belong to")
    given = parser.parse_args()
    options = Options(given.data, given.webhook_url, given.webhook_secret, given.key_seconds, given.account, given.webhook_lanes)
    try:
        serve(options, given.host, given.port)
    except sqlite3.OperationalError as error:
        sys.stderr.write(f"sandbox: cannot use {given.data}: {error}\n")
        return 1
    except OSError as error:
        sys.stderr.write(f"sandbox: cannot serve on {given.host}:{given.port}: {error.strerror}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
