"""The servers that are compared: ours and the listed peers, each started on one core in an environment of its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from loadtests.measure import Bench
from loadtests.server import ServerProcess, Target, free_ports, our_command
from testbed.bundle import Bundle
from testbed.progress import say
from testbed.records import write_atomically

PEERS = Path(__file__).with_name("peers")
OURS = "breakeven"


@dataclass(frozen=True)
class Contender:
    """A server that takes part.

    Attributes:
        name: in the table and in file names.
        about: in one line.
        command: what starts it, ``{port}`` and the like filled in later; empty for ours.
        ready: path that is answered with 200 once it can infer.
        template: its request's form; None for the Open Inference Protocol of ours.
    """

    name: str
    about: str
    command: tuple[str, ...]
    ready: str = "/v2/health/ready"
    template: dict[str, str] | None = field(default=None, hash=False)


def contenders(environments: Path) -> list[Contender]:
    """Return ours and every listed peer whose environment was made; the others are named aloud."""
    found = [Contender(OURS, "this project's server, its default batching", ())]
    for peer in yaml.safe_load((PEERS / "peers.yaml").read_text(encoding="utf-8"))["peers"]:
        python = environments / peer["name"] / "bin" / "python"
        if not python.exists():
            say(f"{peer['name']}: left out, {python} was not made (see make_peers.py)")
            continue
        command = tuple(part.replace("{python}", str(python.absolute())) for part in peer["command"])
        found.append(Contender(peer["name"], peer["about"], command, peer["ready"], peer["template"]))
    return found


@contextmanager
def started(contender: Contender, bench: Bench, bundle: Bundle, variant: str, core: int) -> Iterator[Target]:
    """Serve a bundle's variant on one core with one contender; raises UserError where it does not start."""
    port, *more = free_ports(3)
    url = f"http://127.0.0.1:{port}"
    words = {"{folder}": str(PEERS), "{bundle}": str(bundle.folder), "{variant}": variant, "{port}": str(port)}
    words |= {"{second-port}": str(more[0]), "{third-port}": str(more[1])}
    command = [_fill(part, words) for part in contender.command]
    if not command:
        command = our_command(bundle.folder, variant=variant, profile="cpu", port=port)
    template = None
    if contender.template is not None:
        template = bench.logs / f"{contender.name}.template.yaml"
        write_atomically(template, lambda temporary: temporary.write_text(yaml.safe_dump(contender.template)))
    log = bench.logs / f"{contender.name}.log"
    with ServerProcess(command, url=url, cores=(core,), log=log, ready_path=contender.ready) as server:
        yield bench.idle(
            Target(
                url=url,
                variant=variant,
                profile=contender.name,
                model=bundle.manifest.name,
                protocol="oip" if template is None else "template",
                template=template,
                pid=server.pid,
                cores=(core,),
            )
        )


def _fill(part: str, words: dict[str, str]) -> str:
    for word, value in words.items():
        part = part.replace(word, value)
    return part
