"""The command line is frozen: docs/command-line.md is what it is, and the README uses nothing else."""

import re
import shlex
from pathlib import Path

import pytest

from pipeline.reference import commands, reference

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(?:sh|console)\n(.*?)```", README, flags=re.DOTALL)
LINES = [line for block in BLOCKS for line in block.replace("\\\n", " ").splitlines() if line.strip()]
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE))


def test_the_reference_is_what_the_command_line_is() -> None:
    written = (ROOT / "docs" / "command-line.md").read_text(encoding="utf-8")
    assert written == reference(), "help: python -m pipeline.reference > docs/command-line.md"


def test_every_option_says_what_it_is() -> None:
    for name, command in commands().items():
        assert command.help, name
        for parameter in command.params:
            assert getattr(parameter, "help", None), f"{name}: {parameter.name} has no help"


def test_the_readme_has_commands() -> None:
    assert len(LINES) > 5


@pytest.mark.parametrize("line", [line for line in LINES if line.startswith("make ")])
def test_the_readmes_make_targets_exist(line: str) -> None:
    words = [word for word in shlex.split(line, comments=True)[1:] if "=" not in word]
    assert set(words) <= TARGETS


@pytest.mark.parametrize("line", [line for line in LINES if re.match(r"(\.venv/bin/)?breakeven ", line)])
def test_the_readmes_breakeven_commands_exist(line: str) -> None:
    words = shlex.split(line, comments=True)[1:]
    known = commands()
    name = words[0] if words[0] in known else " ".join(words[:2])
    if name not in known:  # `loadtest` guesses its subcommand
        name = f"{words[0]} {'server' if '--url' in words else 'experiment'}"
    assert name in known, line
    options = {option for parameter in known[name].params for option in (*parameter.opts, *parameter.secondary_opts)}
    used = {word.split("=")[0] for word in words if word.startswith("--")}
    assert used <= options | {"--help"}, line


@pytest.mark.parametrize("path", re.findall(r"\]\((?!http)([^)#]+)", README))
def test_the_readmes_links_lead_somewhere(path: str) -> None:
    assert (ROOT / path).exists()


def test_the_readmes_figures_are_those_of_the_committed_run() -> None:
    folder = re.search(r"\]\((results/[^)/]+)", README)
    assert folder, "the README names the folder of the run that its table comes from"
    reported = (ROOT / folder[1] / "report.md").read_text(encoding="utf-8").splitlines()
    block = README.split("<!-- results -->")[1].split("<!-- end -->")[0]
    rows = [line for line in block.splitlines() if line.startswith("|")]
    assert len(rows) > 5
    assert set(rows) <= set(reported)
