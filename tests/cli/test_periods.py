"""`refunds ledger period`: files in a directory of their own, and nothing that is cut off or leads elsewhere is taken for whole."""

from pathlib import Path

import pytest

from tests.cli.conftest import FakeApi, Runner

PERIOD = ("ledger", "period", "--from", "2026-03-01", "--to", "2026-04-01")


def test_an_export_that_was_cut_off_is_said_to_be(api: FakeApi, refunds: Runner) -> None:
    api.on("POST", "/v1/ledger/periods", (200, {"file": "refunds.csv", "text": "x\r\n"}))

    ran = refunds(*PERIOD, "march")

    assert (ran.code, Path("march/refunds.csv").read_bytes()) == (3, b"x\r\n")
    assert "cut off" in ran.err
    assert not Path("march/manifest.json").exists()


@pytest.mark.parametrize("name", ["../out.csv", "/tmp/out.csv", "manifest.json", "a/b.csv", "refunds.csv\n"])
def test_a_file_that_leads_elsewhere_is_never_written(api: FakeApi, refunds: Runner, name: str) -> None:
    api.on("POST", "/v1/ledger/periods", (200, {"file": name, "text": "x"}))

    ran = refunds(*PERIOD, "march")

    assert (ran.code, list(Path("march").iterdir())) == (1, [])


def test_a_directory_with_something_in_it_is_refused_before_anything_is_asked(api: FakeApi, refunds: Runner) -> None:
    Path("march").mkdir()
    Path("march/old").write_text("x")

    ran = refunds(*PERIOD, "march")

    assert (ran.code, api.sent("POST")) == (2, [])


def test_a_directory_that_is_no_export_does_not_verify(refunds: Runner, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()

    ran = refunds("ledger", "verify", str(tmp_path / "empty"), "--key", "log+00000000+AAAA")

    assert ran.code == 2
    assert "Traceback" not in ran.err
