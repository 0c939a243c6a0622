from pathlib import Path

import pytest
from typer.testing import CliRunner

from pipeline.command import app
from pipeline.command_train import injected_delay_s
from testbed.errors import UserError

RUNNER = CliRunner()
COULD_NOT_RUN = 3


@pytest.mark.parametrize(
    "arguments",
    [
        ["--urrl", "http://127.0.0.1:1"],
        ["--url", "http://127.0.0.1:1"],  # no --texts
        ["absent.yaml"],
        ["judge", "absent-bundle"],
        ["server", "--url", "http://127.0.0.1:1", "--texts", "absent.txt"],
        ["--url", "http://127.0.0.1:1", "--texts", "absent.txt", "--protocol", "smoke-signals"],
        ["--url", "http://127.0.0.1:1", "--texts", "absent.txt", "--protocol", "template"],
    ],
)
def test_what_could_not_run_is_neither_a_verdict_nor_invalid(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert RUNNER.invoke(app, ["loadtest", *arguments]).exit_code == COULD_NOT_RUN


def test_nothing_listening_could_not_run(tmp_path: Path) -> None:
    texts = tmp_path / "texts.txt"
    texts.write_text("what is it ?\n")
    result = RUNNER.invoke(app, ["loadtest", "--url", "http://127.0.0.1:1", "--texts", str(texts)])
    assert result.exit_code == COULD_NOT_RUN


def test_help_is_no_failure() -> None:
    result = RUNNER.invoke(app, ["loadtest", "--help"])
    assert result.exit_code == 0
    assert "experiment" in result.output
    assert "server" in result.output


@pytest.mark.parametrize(("fault", "seconds"), [("slow-storage=20ms", 0.02), ("slow-storage=1.5s", 1.5)])
def test_a_fault_is_read_with_its_unit(fault: str, seconds: float) -> None:
    assert injected_delay_s(fault) == pytest.approx(seconds)


@pytest.mark.parametrize("fault", ["slow-storage", "slow-storage=20", "meteor=1s", "slow-storage=-1s"])
def test_another_fault_is_refused(fault: str) -> None:
    with pytest.raises(UserError, match="help: slow-storage=20ms"):
        injected_delay_s(fault)
