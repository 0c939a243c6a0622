"""What a loaded model says of itself: metadata, configuration, proof of execution."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

from serve.caveats import caveats
from serve.policies import Policy
from testbed.records.bundle import BundleManifest, Variant
from testbed.records.load import Proof

PLATFORM = "onnxruntime_onnx"


@dataclass(frozen=True)
class Card:
    """The outside of a model.

    Attributes:
        name, version: as in the manifest; the version as the protocols write it.
        labels: label names by id.
        variant: what was loaded.
        profile, policy: how it is served.
        max_length: tokens of a text at most.
        token_budget: tokens of a batch.
        max_texts: texts of a batch.
        proof: what runs where.
    """

    name: str
    version: str
    labels: tuple[str, ...]
    variant: Variant
    profile: str
    policy: str
    max_length: int
    token_budget: int
    max_texts: int
    proof: Proof

    @classmethod
    def of(
        cls,
        manifest: BundleManifest,
        variant: Variant,
        *,
        profile: str,
        policy_name: str,
        policy: Policy,
        proof: Proof,
    ) -> Self:
        """Return the card of a variant served in this way."""
        return cls(
            name=manifest.name,
            version=str(manifest.version),
            labels=manifest.labels,
            variant=variant,
            profile=profile,
            policy=policy_name,
            max_length=manifest.max_length,
            token_budget=policy.max_tokens,
            max_texts=policy.max_texts,
            proof=proof,
        )

    @property
    def caveats(self) -> tuple[str, ...]:
        """What a user should know of this variant on this machine."""
        return caveats(self.variant, self.proof.isa)

    @property
    def warning(self) -> str | None:
        """The caveats in one sentence, or None."""
        return "; ".join(self.caveats) or None

    def metadata(self, versions: list[str]) -> dict[str, Any]:
        """Return the Open Inference Protocol's model metadata, with ``proof`` and ``parameters`` beside it."""
        width = len(self.labels)
        return {
            "name": self.name,
            "versions": versions,
            "platform": PLATFORM,
            "inputs": [
                {"name": "text", "datatype": "BYTES", "shape": [-1]},
                {"name": "input_ids", "datatype": "INT64", "shape": [-1, -1]},
                {"name": "attention_mask", "datatype": "INT64", "shape": [-1, -1]},
            ],
            "outputs": [
                {"name": "label", "datatype": "BYTES", "shape": [-1]},
                {"name": "probabilities", "datatype": "FP32", "shape": [-1, width]},
                {"name": "logits", "datatype": "FP32", "shape": [-1, width]},
            ],
            "proof": self.proof.model_dump(mode="json"),
            "parameters": {
                "labels": list(self.labels),
                "variant": self.variant.name,
                "profile": self.profile,
                "policy": self.policy,
                "max_length": self.max_length,
                "token_budget": self.token_budget,
                "warning": self.warning,
            },
        }

    def proof_headers(self) -> list[tuple[bytes, bytes]]:
        """Return the proof of execution as headers, for one answer."""
        proof = self.proof
        values = {
            "variant": self.variant.name,
            "providers": ",".join(f"{provider}={nodes}" for provider, nodes in proof.providers.items()),
            "precision": proof.precision,
            "threads": str(proof.threads),
            "isa": ",".join(proof.isa),
            "sha256": proof.file_sha256,
        }
        return [(f"x-breakeven-{name}".encode(), value.encode()) for name, value in values.items()]

    def config(self) -> dict[str, Any]:
        """Return the configuration in the form that Triton's clients read."""
        metadata = self.metadata([self.version])
        return {
            "name": self.name,
            "platform": PLATFORM,
            "backend": "onnxruntime",
            "version_policy": {"latest": {"num_versions": 1}},
            "max_batch_size": 0,
            "input": [_tensor_config(tensor) for tensor in metadata["inputs"]],
            "output": [_tensor_config(tensor) for tensor in metadata["outputs"]],
            "instance_group": [{"name": self.profile, "count": 1, "kind": _kind(self.profile)}],
            "dynamic_batching": {"preferred_batch_size": [self.max_texts], "max_queue_delay_microseconds": 0},
        }


def _tensor_config(tensor: dict[str, Any]) -> dict[str, Any]:
    kind = {"BYTES": "TYPE_STRING", "INT64": "TYPE_INT64", "FP32": "TYPE_FP32"}[tensor["datatype"]]
    return {"name": tensor["name"], "data_type": kind, "dims": tensor["shape"], "optional": tensor["shape"] == [-1, -1]}


def _kind(profile: str) -> str:
    return "KIND_GPU" if profile == "gpu" else "KIND_CPU"
