"""Makes each peer's own environment: ``python benchmarks/serving/peers/make_peers.py [NAME …] [--into DIR]``."""

from __future__ import annotations

import argparse
import subprocess
import sys
import venv
from pathlib import Path

import yaml

HERE = Path(__file__).parent


def interpreter(into: Path, name: str) -> Path:
    """Return the Python of a peer's environment."""
    return into / name / "bin" / "python"


def main() -> int:
    """Make the environments that are asked for; returns how many could not be made."""
    listed = yaml.safe_load((HERE / "peers.yaml").read_text(encoding="utf-8"))
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(peer["name"] for peer in listed["peers"]))
    parser.add_argument("--into", type=Path, default=Path(".cache/peers"), help="folder of the environments")
    options = parser.parse_args()
    failed = 0
    for peer in listed["peers"]:
        if options.names and peer["name"] not in options.names:
            continue
        venv.create(options.into / peer["name"], with_pip=True, clear=True)
        install = [interpreter(options.into, peer["name"]), "-m", "pip", "install", "--quiet"]
        done = subprocess.run([*install, *listed["common"], *peer["requirements"]], check=False)
        failed += done.returncode != 0
        print(f"{peer['name']}: {'made' if done.returncode == 0 else 'FAILED'}", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())
