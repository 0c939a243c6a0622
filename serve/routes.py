"""Which paths are inference, and which protocol each of them speaks."""

from __future__ import annotations

from typing import NamedTuple

from serve.protocols.codec import Codec
from serve.protocols.huggingface import HuggingFace
from serve.protocols.kserve_v1 import KServeV1
from serve.protocols.oip import OpenInference

OIP, HF, V1 = OpenInference(), HuggingFace(), KServeV1()


class Target(NamedTuple):
    """What a path asks: the protocol, the model (None = the default one) and its version (None = the newest)."""

    codec: Codec
    model: str | None = None
    version: str | None = None


def route(path: str) -> Target | None:
    """Return what an inference path asks; None for every other one."""
    match path.split("/")[1:]:
        case [""] | ["predict"]:
            return Target(HF)
        case ["v2", "models", name, "infer"]:
            return Target(OIP, name)
        case ["v2", "models", name, "versions", version, "infer"]:
            return Target(OIP, name, version)
        case ["v1", "models", target] if target.endswith(":predict"):
            return Target(V1, target.removesuffix(":predict"))
    return None
