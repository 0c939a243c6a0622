"""The subcommand that prepares a bundle for small devices."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

app = typer.Typer()


@app.command()
def ort(
    bundle: Annotated[Path, typer.Argument(help="bundle folder, such as runs/trec/bundle")],
    variant: Annotated[list[str] | None, typer.Option(help="variant; repeat it  [default: all]")] = None,
    out: Annotated[Path | None, typer.Option(help="folder of the result  [default: `ort` beside the bundle]")] = None,
) -> None:
    """Convert variants to ONNX Runtime's format for edge devices, list the operators needed, and compare the sizes."""
    from quantize.edge import convert_to_ort
    from testbed.bundle import Bundle

    names = variant or [found.name for found in Bundle(bundle).manifest.variants]
    folder = out or bundle.parent / "ort"
    table = Table(box=SIMPLE_HEAD, padding=(0, 1), pad_edge=False)
    for name in ("variant", "ONNX\nMB", ".ort\nMB", "ONNX,\ngzip MB", ".ort,\ngzip MB"):
        table.add_column(name, justify="left" if name == "variant" else "right")
    for sizes in convert_to_ort(bundle, variants=names, folder=folder):
        table.add_row(sizes.variant, *(f"{size / 1e6:.2f}" for size in sizes[1:]))
    Console().print(table)
    Console().print(f"{folder}: written", highlight=False)
