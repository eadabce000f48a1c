"""What a killed test run leaves in memory is cleared by the next one, and nobody else's."""

import signal
import subprocess
import sys
from pathlib import Path

import psutil

from tests.conftest import ROOT
from tests.thrown_away import clear_leftovers, open_directory

# Opens a directory as a run does, starts a server that names a file in it, says where both are, and waits.
_RUN = """
import subprocess, sys
from tests.thrown_away import open_directory
with open_directory() as directory:
    server = subprocess.Popen([sys.executable, "-c", "input()", str(directory / "data")], stdin=subprocess.PIPE)
    print(directory, server.pid, flush=True)
    input()
"""


def test_what_a_killed_run_left_is_cleared_and_what_a_running_one_has_is_not() -> None:
    run = subprocess.Popen([sys.executable, "-c", _RUN], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert run.stdin is not None and run.stdout is not None
    with run.stdin, run.stdout:
        where, pid = run.stdout.readline().split()
        left, server = Path(where), psutil.Process(int(pid))
        try:
            with open_directory() as ours:
                clear_leftovers()
                assert (left.is_dir(), server.is_running(), ours.is_dir()) == (True, True, True)

                server.suspend()  # so that it does not end by itself when the run, at the other end of its input, is gone
                run.send_signal(signal.SIGKILL)
                run.wait()
                clear_leftovers()
                assert (left.exists(), _runs(server), ours.is_dir()) == (False, False, True)
            assert not ours.exists()
        finally:
            if _runs(server):
                server.kill()


def _runs(process: psutil.Process) -> bool:
    return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
