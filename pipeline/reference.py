"""Writes docs/command-line.md from the command line itself: ``python -m pipeline.reference > docs/command-line.md``."""

from __future__ import annotations

import sys
from typing import Any

import typer

from pipeline.command import app

HEAD = "# The command line\n\nWritten by `python -m pipeline.reference`; a test holds it to what the commands are.\n"


def commands() -> dict[str, Any]:
    """Return every command by its full name, such as ``train teacher``; groups are left out."""
    found: dict[str, Any] = {}

    def walk(command: Any, name: tuple[str, ...]) -> None:  # noqa: ANN401 - typer keeps its command class private
        inner = getattr(command, "commands", None)
        if inner is None:
            found[" ".join(name)] = command
            return
        for part in sorted(inner):
            walk(inner[part], (*name, part))

    walk(typer.main.get_command(app), ())
    return found


def reference() -> str:
    """Return the page: a section a command, a line a parameter."""
    every = {"": typer.main.get_command(app)} | commands()
    return "\n".join([HEAD, *(_section(name, command) for name, command in every.items())])


def _section(name: str, command: Any) -> str:  # noqa: ANN401
    lines = [f"## `{f'breakeven {name}'.strip()}`", "", " ".join(str(command.help).split()), ""]
    for parameter in command.params:
        is_option = parameter.param_type_name == "option"
        shown = ", ".join((*parameter.opts, *parameter.secondary_opts)) if is_option else parameter.name.upper()
        default = "" if parameter.default in {None, "", ()} or callable(parameter.default) else parameter.default
        told = f" Default: `{default}`." if default != "" and not isinstance(default, bool) else ""
        help_text = " ".join(str(getattr(parameter, "help", "") or "").split())
        lines.append(f"- `{shown}`: {help_text}.{told}")
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    sys.stdout.write(reference())
