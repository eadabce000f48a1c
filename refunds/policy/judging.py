"""``python -m refunds.policy.judging``: a process that judges requests under two policies and can do nothing else.

It reads lines of JSON from its input and answers each with one line: the first line names both policies, every other holds requests. It is started without
the environment of whoever starts it, knows no database, no key and no network, and ends when its input does. See :mod:`refunds.policy.judges`.
"""

import json
import os
import sys
from collections.abc import Iterable, Iterator
from typing import Any

from refunds.policy.load import load_policy
from refunds.policy.model import Policy
from refunds.policy.recorded import UnreadableFacts, facts_from
from refunds.policy.simulation import Tally, judge_both

_GENTLY = 10
"""How far it stands back (``nice``): a simulation slows no refund down."""


def judge(before: Policy, after: Policy, batch: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Judge a batch of requests, each an id and its plain facts: the tally of it, and every request that would have gone otherwise."""
    tally, changed = Tally(), list[dict[str, Any]]()
    for identifier, plain in batch:
        try:
            facts = facts_from(plain)
        except UnreadableFacts as error:
            tally.leave_out(f"the recorded facts cannot be read: {error}", identifier)
            continue
        found = judge_both(before, after, identifier, facts, tally)
        if found is not None:
            changed.append(found.plain())
    return {"tally": tally.plain(), "changed": changed}


def answers(lines: Iterable[bytes]) -> Iterator[bytes]:
    """The answer to each line after the first one."""
    source = iter(lines)
    policies = json.loads(next(source))
    before, after = (load_policy(policies[name], published=True) for name in ("before", "after"))
    for line in source:
        yield json.dumps(judge(before, after, json.loads(line)), separators=(",", ":")).encode() + b"\n"


def main() -> None:
    """Judge what comes in until nothing more does."""
    os.nice(_GENTLY)
    for answer in answers(sys.stdin.buffer):
        sys.stdout.buffer.write(answer)
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
