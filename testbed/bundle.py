"""The travelling folder: manifest, tokenizer and variants, each file held to its sha256."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from testbed.records.base import Sha256
from testbed.records.bundle import BundleManifest, Variant
from testbed.records.files import RecordError, file_sha256, load_as, save

if TYPE_CHECKING:
    from testbed.tokenization import TextTokenizer

MANIFEST = "manifest.json"


class Bundle:
    """A bundle on disk.

    Args:
        folder: holds ``manifest.json``.

    Raises:
        RecordError: no manifest, a damaged one, or one of a newer schema.
    """

    def __init__(self, folder: Path) -> None:
        if not folder.is_dir():
            msg = f"{folder}: no such bundle; help: make one with `breakeven quantize EXPERIMENT.yaml`"
            raise RecordError(msg)
        self.folder = folder
        self.manifest = load_as(BundleManifest, folder / MANIFEST)

    def tokenizer(self, variant: Variant | None = None) -> TextTokenizer:
        """Return the variant's tokenizer (the bundle's where it has none of its own), its hash checked.

        Raises:
            RecordError: missing, changed, or no tokenizer.
        """
        # Here: a server's supervisor reads manifests alone, and need not hold the tokenizers library.
        from testbed.tokenization import TextTokenizer

        own = None if variant is None else variant.tokenizer
        name, sha256, length = (
            (self.manifest.tokenizer_file, self.manifest.tokenizer_sha256, self.manifest.max_length)
            if own is None
            else (own.file, own.sha256, own.max_length)
        )
        check_file(self.folder / name, sha256)
        return TextTokenizer(self.folder / name, max_length=length)

    def pad_token_id(self, variant: Variant) -> int:
        """Return the id that fills a variant's padded batches up."""
        return self.manifest.pad_token_id if variant.tokenizer is None else variant.tokenizer.pad_token_id

    def model_file(self, variant: Variant) -> Path:
        """Return the variant's ONNX file after checking the hash of each of its files; raises RecordError."""
        for relative, sha256 in variant.files.items():
            check_file(self.folder / relative, sha256)
        return self.folder / variant.path

    def packed_file(self, variant: Variant) -> Path | None:
        """Return the variant's packed ONNX file, checked as ``model_file`` does, or None where it has none."""
        self.model_file(variant)
        return None if variant.packed_path is None else self.folder / variant.packed_path


def check_file(path: Path, sha256: Sha256) -> None:
    """Raise RecordError unless the file exists and has this hash."""
    if not path.is_file():
        msg = f"{path}: missing; help: copy the whole bundle folder, or quantize again"
        raise RecordError(msg)
    found = file_sha256(path)
    if found != sha256:
        msg = f"{path}: sha256 {found[:12]}…, the manifest says {sha256[:12]}…: damaged or changed; help: copy it again"
        raise RecordError(msg)


def write_manifest(manifest: BundleManifest, folder: Path) -> None:
    """Write the manifest last: a folder with a manifest is a whole bundle."""
    save(manifest, folder / MANIFEST)
