"""One ONNX Runtime session, and the proof of what runs where."""

from __future__ import annotations

import logging
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort

from serve.config import Profile
from serve.jobs import Floats
from serve.layouts import Feed
from testbed.denormals import FlushedDenormals
from testbed.errors import UserError

CPU_PROVIDER = "CPUExecutionProvider"
# ONNX Runtime's log severity: its warnings about initializers and shapes are no news to whoever runs a server.
ERRORS_ONLY = 3
# Arithmetic on shapes, a few integers each, that ONNX Runtime keeps on the CPU on purpose, also beside a GPU.
SHAPE_OPERATORS = frozenset(
    "Add Cast Concat ConstantOfShape Div Equal Expand Gather Mul Range ReduceProd Reshape Shape Slice Squeeze Sub "
    "Unsqueeze Where".split()
)

logger = logging.getLogger(__name__)


class Backend:
    """A loaded graph.

    Args:
        path: the ONNX file, its hash already checked.
        profile: provider and memory habits.
        threads: intra-op threads.

    Attributes:
        inputs: the graph's input names.
        providers: execution provider to number of nodes that it runs, as ONNX Runtime recorded it.

    Raises:
        UserError: the file cannot be loaded, or not on the profile's provider.
    """

    def __init__(self, path: Path, *, profile: Profile, threads: int) -> None:
        require_provider(profile)
        self._session = _open(path, profile=profile, threads=threads)
        self._has_cpu_arena = profile.arena and profile.provider == CPU_PROVIDER
        self.inputs = tuple(node.name for node in self._session.get_inputs())
        self.providers = dict(Counter(provider for provider, _ in _placed(self._session)))

    def run(self, feed: Feed) -> Floats:
        """Return logits [texts, num_labels], float32; raises what ONNX Runtime raises."""
        with FlushedDenormals():
            logits: Floats = self._session.run(["logits"], feed)[0]
        return logits.astype(np.float32, copy=False)

    def shrink(self, feed: Feed) -> None:
        """Run once more and give back what the arena holds beyond it: the warm-up's largest batches need not stay."""
        if not self._has_cpu_arena:
            return
        options = ort.RunOptions()
        options.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
        self._session.run(["logits"], feed, options)


def require_provider(profile: Profile) -> None:
    """Refuse a profile whose provider this ONNX Runtime does not have.

    Raises:
        UserError: names the provider and what to install.
    """
    found = ort.get_available_providers()
    if profile.provider not in found:
        msg = (
            f"profile {profile.name!r} needs {profile.provider}, this onnxruntime has {', '.join(found)}; "
            "help: `make setup GPU=1` on a machine with an NVIDIA GPU, or --profile cpu"
        )
        raise UserError(msg)


def probabilities(logits: Floats) -> Floats:
    """Return the softmax of each row [texts, num_labels]."""
    shifted = np.exp(logits - logits.max(axis=1, keepdims=True))
    result: Floats = shifted / shifted.sum(axis=1, keepdims=True)
    return result


def session_options(profile: Profile, *, threads: int) -> ort.SessionOptions:
    """Return options of a serving session: explicit threads, and memory that stays bounded."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = ERRORS_ONLY
    # A memory pattern is kept for every input shape ever seen: with free lengths that only grows.
    options.enable_mem_pattern = False
    options.enable_cpu_mem_arena = profile.arena
    options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    # Of the session's own threads; the one that calls it joins in and has FlushedDenormals.
    options.add_session_config_entry("session.set_denormal_as_zero", "1")
    options.add_session_config_entry("session.intra_op.allow_spinning", "1" if profile.spinning else "0")
    return options


def _open(path: Path, *, profile: Profile, threads: int) -> ort.InferenceSession:
    options = session_options(profile, threads=threads)
    if profile.provider == CPU_PROVIDER:
        return _session(path, options, profile)
    options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    try:
        return _session(path, options, profile)
    except UserError as refused:
        # It also refuses graphs whose shape arithmetic stays on the CPU by design: look at what would stay there.
        session = _session(path, session_options(profile, threads=threads), profile)
        strays = sorted({operator for provider, operator in _placed(session) if provider != profile.provider})
        if profile.provider not in session.get_providers() or not SHAPE_OPERATORS.issuperset(strays):
            msg = f"{refused}; on the CPU it would run {', '.join(strays)}"
            raise UserError(msg) from refused
        logger.info("shape arithmetic stays on the CPU", extra={"figures": {"operators": strays}})
        return session


def _session(path: Path, options: ort.SessionOptions, profile: Profile) -> ort.InferenceSession:
    try:
        # A process's first session sets the mode of denormals in this thread, too, and leaves it so.
        with FlushedDenormals():
            return ort.InferenceSession(path, options, providers=[profile.provider])
    except Exception as error:  # its exceptions share no base class of their own
        msg = f"{path}: ONNX Runtime cannot load it on {profile.provider}: {error}; help: {_load_help(profile)}"
        raise UserError(msg) from error


def _placed(session: ort.InferenceSession) -> list[tuple[str, str]]:
    """Return (provider, operator) of every node."""
    parts: list[Any] = session.get_provider_graph_assignment_info()
    return [(part.ep_name, node.op_type) for part in parts for node in part.get_nodes()]


def _load_help(profile: Profile) -> str:
    if profile.provider == CPU_PROVIDER:
        return "quantize again, or copy the bundle again"
    return "check the driver and the CUDA and cuDNN libraries (`breakeven doctor`), or --profile cpu"
