"""What a server is told: the settings, and the defaults of each profile."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field

from testbed.records.base import Frozen

ProfileName = Literal["cpu", "edge", "gpu"]
PolicyName = Literal["none", "fixed", "sorted", "packed"]


class Profile(Frozen):
    """A deployment: what the same bundle may use of the machine.

    Attributes:
        name: as on the command line.
        provider: ONNX Runtime's execution provider; the only one that is allowed.
        max_threads: intra-op threads at most; None = all that the process may use.
        spinning: ORT threads busy-wait for work: quicker, but idle CPU is not idle.
        arena: keep a memory arena: quicker, but what a large batch needed once stays allocated.
        memory_bytes: cap on private memory (RLIMIT_DATA), or None.
        slo_s: deadline of a request that names none.
    """

    name: ProfileName
    provider: str
    max_threads: int | None
    spinning: bool
    arena: bool
    memory_bytes: int | None
    slo_s: float


PROFILES: dict[ProfileName, Profile] = {
    "cpu": Profile(
        name="cpu",
        provider="CPUExecutionProvider",
        max_threads=None,
        spinning=True,
        arena=True,
        memory_bytes=None,
        slo_s=1.0,
    ),
    "edge": Profile(
        name="edge",
        provider="CPUExecutionProvider",
        max_threads=1,
        spinning=False,
        arena=False,
        memory_bytes=512 * 2**20,
        slo_s=2.0,
    ),
    "gpu": Profile(
        name="gpu",
        provider="CUDAExecutionProvider",
        max_threads=None,
        spinning=False,
        arena=True,
        memory_bytes=None,
        slo_s=0.5,
    ),
}


class Limits(Frozen):
    """What a client may ask for.

    Attributes:
        body_bytes: of one request, as sent and after decompression.
        rows: texts in one request.
        text_bytes: UTF-8 bytes of one text.
        receive_s: seconds from a request's first byte to its last.
    """

    body_bytes: int = 4 * 2**20
    rows: int = 1024
    text_bytes: int = 64 * 2**10
    receive_s: float = 10.0


class ServeSettings(Frozen):
    """Everything a server is told.

    Attributes:
        bundle: folder with a manifest.
        variant: name in the manifest; None = the only one.
        profile: ``cpu``, ``edge`` or ``gpu``.
        repository: folder of further bundles that may be loaded by name; None = the bundle alone.
        host, port: where to listen.
        policy: how batches are made; None = ``packed`` where the variant has that layout, else ``sorted``.
        threads: intra-op threads of a worker; None = what the process may use, shared out over the workers.
        num_workers: processes on the port.
        slo_s: deadline of a request that names none; None = the profile's.
        max_batch: texts in a batch at most.
        batch_delay_s: how long the ``fixed`` policy waits for a full batch.
        token_budget: tokens in a batch; None = from the batch times measured at warm-up.
        queue_tokens: tokens that may wait.
        keep_alive_s: idle seconds after which a connection is closed.
        shutdown_delay_s: seconds between readiness off and the closing of the port, for load balancers to notice.
        drain_s: seconds that SIGTERM leaves to the connections that are open.
        stuck_s: a batch that runs longer ends the worker, and a new one is started.
        limits: what a client may ask for.
        api_keys_file: one key a line; keys may also stand in BREAKEVEN_API_KEYS, separated by commas.
        tls_certificate, tls_key: PEM files.
        access_log: one JSON line for every request.
        memory_bytes: cap on private memory; None = the profile's.
    """

    bundle: Path
    variant: str | None = None
    profile: ProfileName = "cpu"
    repository: Path | None = None
    host: str = "127.0.0.1"
    port: int = Field(default=8080, ge=0, le=65535)
    policy: PolicyName | None = None
    threads: int | None = Field(default=None, ge=1)
    num_workers: int = Field(default=1, ge=1)
    slo_s: float | None = Field(default=None, gt=0)
    max_batch: int = Field(default=32, ge=1)
    batch_delay_s: float = Field(default=0.002, ge=0)
    token_budget: int | None = Field(default=None, ge=1)
    queue_tokens: int = Field(default=65536, ge=1)
    keep_alive_s: int = Field(default=75, ge=1)
    shutdown_delay_s: float = Field(default=0.0, ge=0)
    drain_s: float = Field(default=10.0, ge=0)
    stuck_s: float = Field(default=30.0, gt=0)
    limits: Limits = Limits()
    api_keys_file: Path | None = None
    tls_certificate: Path | None = None
    tls_key: Path | None = None
    access_log: bool = False
    memory_bytes: int | None = Field(default=None, ge=64 * 2**20)
