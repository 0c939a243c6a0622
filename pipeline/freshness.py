"""Whether a stage is up to date: its config section, its parents' hashes and its own outputs are what they were."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

from pydantic import JsonValue

from testbed.records import file_sha256, write_atomically


def outputs_sha256(folder: Path, patterns: tuple[str, ...]) -> str | None:
    """Return one hash over the files that match, or None where a pattern matches nothing."""
    digest = hashlib.sha256()
    for pattern in patterns:
        files = sorted(path for path in folder.glob(pattern) if path.is_file())
        if not files:
            return None
        for file in files:
            digest.update(f"{file.relative_to(folder)} {file_sha256(file)}\n".encode())
    return digest.hexdigest()


def source_sha256(source: str) -> str | None:
    """Return the hash of a user's own file, or of the files below a folder; None for a name that is no path."""
    path = Path(source)
    if path.is_file():
        return file_sha256(path)
    return outputs_sha256(path, ("**/*",)) if path.is_dir() else None


def inputs_sha256(config: JsonValue, parents: Mapping[str, str | None]) -> str:
    """Return one hash over a config section and the hashes of what the stage reads."""
    text = json.dumps({"config": config, "parents": dict(parents)}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def is_fresh(stamp: Path, *, inputs: str, outputs: str | None) -> bool:
    """Tell whether the stamp was written for these inputs and these outputs."""
    try:
        written = json.loads(stamp.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return outputs is not None and written == {"inputs": inputs, "outputs": outputs}


def write_stamp(stamp: Path, *, inputs: str, outputs: str) -> None:
    """Remember what a finished stage was made from and what it made."""
    text = json.dumps({"inputs": inputs, "outputs": outputs}) + "\n"
    write_atomically(stamp, lambda temporary: temporary.write_text(text, encoding="utf-8"))
