"""python -m deploy.local up [PART ...] | clean: the local stack without the `refunds` command."""

import argparse
import sys

from deploy.local import leftovers, stack
from deploy.local.parts import PARTS


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m deploy.local", description="The local stack.")
    parser.add_argument("action", choices=["up", "clean"], help="run it in the foreground; or remove all its data")
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"only these: {', '.join(part.name for part in PARTS)}")
    given = parser.parse_args()
    if given.action == "up":
        return stack.run(parts=given.parts or None)
    try:
        leftovers.remove(stack.default_home(), PARTS)
    except leftovers.AlreadyRunningError as running:
        sys.stderr.write(f"{running} Stop it first.\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
