"""``refunds demo``: start the local stack afresh, play the scenes, hold every end against what was expected, then keep serving or stop."""

import os
import shlex
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path

import httpx
from rich.console import Console

from cli.client import Api
from cli.connection import Connection, exports, home
from cli.demo.board import Board, NeverHappened
from cli.demo.scenes import SCENES, Scene, Stage
from cli.demo.setup import Cast, Sandbox, hire, load, publish_policy
from cli.demo.table import REFRESHES_PER_SECOND, display
from cli.output import Output
from cli.problems import Exit, Problem
from cli.up import CANNOT_RUN
from deploy.local import environment, leftovers
from deploy.local.parts import PARTS
from deploy.local.progress import ConsoleReporter
from deploy.local.stack import LocalStack

SETTINGS = {
    # Deadlines of the policy are seconds here, so what is tried again and looked after by itself is in seconds as well.
    "SUBMIT_MAX_ATTEMPTS": "3",
    "SUBMIT_RETRY_INITIAL_S": "0.5",
    "HELD_RECHECK_S": "2",
    "SWEEP_EVERY_S": "1",
    "SWEEP_GRACE_S": "3",
}
COUNTED = ("succeeded", "pending")
"""Statuses of the processor's refunds that return money."""


def demo_home() -> Path:
    """The demo's own files: never those of a stack that somebody works with."""
    return home() / "demo"


def ends_by_itself() -> bool:
    """Whether to stop when all is shown: asked for with EXIT=1, or because nobody is there to press Ctrl-C."""
    return os.environ.get("EXIT", "") not in ("", "0") or not sys.stdin.isatty()


def run() -> int:
    """Run the demo; the exit code says whether every refund ended as expected."""
    out, console = Output(), Console(highlight=False)
    where = demo_home()
    try:
        leftovers.remove(where, PARTS)
    except leftovers.AlreadyRunningError as running:
        out.say(str(running))
        out.fields(list(running.state.get("addresses", {}).items()))
        return Exit.REFUSED
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    # Nothing of a person's own settings reaches the demo: it must never touch their database or their Stripe account.
    stack = LocalStack(
        where, environment=_machine_only(), overrides=SETTINGS, reporter=ConsoleReporter(Console(highlight=False, soft_wrap=True))
    )
    code = Exit.REFUSED
    try:
        with stack:
            code = _show(stack, out, console)
            if not ends_by_itself():
                _addresses(stack, out)
                stack.wait()
    except KeyboardInterrupt:
        out.say("Stopped.")
    except httpx.HTTPError as failure:
        out.say(f"The sandbox did not do as it was told: {failure}.")
        return Exit.REFUSED
    except CANNOT_RUN as failure:
        out.say(str(failure))
        return Exit.REFUSED
    return code


def _machine_only() -> dict[str, str]:
    names = (*environment.RUNTIME, *environment.PROXIES)
    return {name: os.environ[name] for name in names if name in os.environ}


def _show(stack: LocalStack, out: Output, console: Console) -> Exit:
    url = stack.addresses["api"]
    sandbox, cast = Sandbox(stack.addresses["sandbox"]), Cast({})
    try:
        cast = hire(url, stack.admin_key, stack.home / "keys")
        publish_policy(cast["administrator"])
        load(cast["administrator"], sandbox, [scene.goods for scene in SCENES])
        out.say(f"{len(cast.clients)} people and systems, {len(SCENES)} orders and a policy are loaded; refunds are sent to {url}.")
        with Api(Connection(url, stack.admin_key)) as reading:
            board = Board(reading)
            with display(board, stack.addresses["ui"], console) as shown:
                board.start()
                try:
                    wrong = _play(SCENES, cast, sandbox, board, shown.refresh)
                finally:
                    board.stop()
        wrong += _differences(SCENES, sandbox, board)
    finally:
        cast.close()
        sandbox.close()
    if wrong:
        out.table(("scene", "differs"), wrong, fold="differs")
        out.say(f"{len(wrong)} things are not as expected.")
        return Exit.REFUSED
    out.say(f"All {len(board.rows())} refunds ended as expected, and the sandbox holds exactly the money that was to go back.")
    return Exit.DONE


def _play(scenes: Sequence[Scene], cast: Cast, sandbox: Sandbox, board: Board, refresh: Callable[[], None]) -> list[tuple[str, str]]:
    """Play all together, then those that need the stage alone; returns what went wrong. Bugs in a scene are raised."""
    wrong: list[tuple[str, str]] = []
    with ThreadPoolExecutor(len(scenes)) as pool:
        try:
            together = [scene for scene in scenes if not scene.alone]
            for group in (together, *([scene] for scene in scenes if scene.alone)):
                playing = {pool.submit(_one, Stage(scene.title, scene.goods, cast, sandbox, board), scene): scene for scene in group}
                for _ in _until_done(playing):
                    refresh()
                wrong += [(scene.title, trouble) for future, scene in playing.items() if (trouble := future.result())]
        except KeyboardInterrupt:
            board.give_up()
            raise
    return wrong


def _one(stage: Stage, scene: Scene) -> str:
    """Play a scene to the end of all its refunds; what went wrong, or nothing."""
    try:
        scene.play(stage)
        for row in stage.board.rows():
            if row.scene == scene.title:
                stage.end(row.refund)
    except (Problem, NeverHappened, httpx.HTTPError) as trouble:
        return str(trouble)
    return ""


def _until_done(playing: dict[Future[str], Scene]) -> Iterator[None]:
    while wait(playing, timeout=1 / REFRESHES_PER_SECOND).not_done:
        yield
    yield


def _differences(scenes: Sequence[Scene], sandbox: Sandbox, board: Board) -> list[tuple[str, str]]:
    """Every refund that did not end as expected, every scene with more or fewer of them, and every payment of which another sum went back."""
    found = [
        (row.scene, f"{row.refund} is {row.now.get('status', 'unseen')} {row.now.get('code') or ''}, expected {row.expected}")
        for row in board.rows()
        if not row.as_expected
    ]
    for scene in scenes:
        asked = sum(row.scene == scene.title for row in board.rows())
        if asked != scene.refunds:
            found.append((scene.title, f"{asked} refunds were made of it, expected {scene.refunds}"))
        made = [refund for refund in sandbox.refunds_of(scene.goods.intent) if refund["status"] in COUNTED]
        if (returned := sum(refund["amount"] for refund in made)) != scene.returned:
            found.append((scene.title, f"{returned} went back of {scene.goods.intent} in {len(made)} refunds, expected {scene.returned}"))
    return found


def _addresses(stack: LocalStack, out: Output) -> None:
    """Where to look, and how to go on by hand, until Ctrl-C."""
    at = stack.addresses
    out.heading("Everything keeps running until Ctrl-C")
    out.fields(
        [
            ("API", f"{at['api']}/docs"),
            ("Temporal UI", at["ui"]),
            ("sandbox", at["sandbox"]),
            ("administrator's key", stack.home / "admin-key"),
            ("other people's keys", f"{stack.home / 'keys'}/<rita, ravi, mona, sven, sara, shop>"),
        ]
    )
    key = shlex.quote(str(stack.home / "keys" / "rita"))
    out.text(f"\nIn another terminal:\n\n{exports(REFUNDS_API_URL=at['api'])} REFUNDS_API_KEY=$(cat {key})\nrefunds list")
