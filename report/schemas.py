"""The JSON Schemas of all record kinds, for programs that read records: `python -m report.schemas docs/schemas`."""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path
from typing import get_args

from testbed.records import Record, write_atomically
from testbed.records.files import AnyRecord


def record_kinds() -> tuple[type[Record], ...]:
    """Return every kind of record that can be loaded, by name."""
    union = get_args(AnyRecord)[0]
    kinds: tuple[type[Record], ...] = get_args(union)
    return tuple(sorted(kinds, key=lambda kind: kind.__name__))


def schema_text(kind: type[Record]) -> str:
    """Return a kind's JSON Schema as it is committed."""
    return json.dumps(kind.model_json_schema(), indent=1, ensure_ascii=False) + "\n"


def write_schemas(folder: Path) -> None:
    """Write ``<Kind>.json`` for every kind."""
    for kind in record_kinds():
        write_atomically(folder / f"{kind.__name__}.json", partial(_write, kind))


def _write(kind: type[Record], path: Path) -> None:
    path.write_text(schema_text(kind), encoding="utf-8")


if __name__ == "__main__":
    write_schemas(Path(sys.argv[1]))
