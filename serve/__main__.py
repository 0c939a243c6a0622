"""The command ``serve``: ``python -m serve BUNDLE --variant V --profile cpu --port N``. Imports nothing heavy."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from serve.config import PolicyName, ProfileName, ServeSettings
from testbed.bundle import Bundle
from testbed.errors import UserError

DEFAULTS = ServeSettings(bundle=Path())


def serve(  # noqa: PLR0917 - typer reads the options off the parameters
    bundle: Annotated[Path, typer.Argument(help="bundle folder, made by `breakeven quantize`")],
    variant: Annotated[str | None, typer.Option(help="variant of the bundle, such as student-int8")] = None,
    profile: Annotated[
        ProfileName, typer.Option(help="cpu, edge (one thread, memory cap, no spinning) or gpu")
    ] = "cpu",
    host: Annotated[str, typer.Option(help="address to listen on")] = DEFAULTS.host,
    port: Annotated[int, typer.Option(help="TCP port; 0 = any free one, which is logged")] = DEFAULTS.port,
    policy: Annotated[
        PolicyName | None, typer.Option(help="batching: none, fixed, sorted or packed  [default: the best there is]")
    ] = None,
    threads: Annotated[
        int | None, typer.Option(help="threads of ONNX Runtime a worker  [default: the usable cores, shared out]")
    ] = None,
    workers: Annotated[int, typer.Option(help="worker processes on the port")] = DEFAULTS.num_workers,
    slo_ms: Annotated[
        float | None, typer.Option(help="deadline of a request that names none, ms  [default: the profile's]")
    ] = None,
    max_batch: Annotated[int, typer.Option(help="texts in a batch at most")] = DEFAULTS.max_batch,
    batch_delay_ms: Annotated[
        float, typer.Option(help="how long the fixed policy waits for a full batch, ms")
    ] = DEFAULTS.batch_delay_s * 1e3,
    token_budget: Annotated[
        int | None, typer.Option(help="tokens in a batch  [default: from batch times measured at start]")
    ] = None,
    queue_tokens: Annotated[int, typer.Option(help="tokens that may wait")] = DEFAULTS.queue_tokens,
    repository: Annotated[
        Path | None, typer.Option(help="folder of further bundles that may be loaded by name")
    ] = None,
    keep_alive_s: Annotated[
        int, typer.Option(help="idle seconds until a connection is closed")
    ] = DEFAULTS.keep_alive_s,
    drain_s: Annotated[float, typer.Option(help="seconds that SIGTERM leaves to open connections")] = DEFAULTS.drain_s,
    shutdown_delay_s: Annotated[
        float, typer.Option(help="seconds between readiness off and the port's closing")
    ] = DEFAULTS.shutdown_delay_s,
    receive_s: Annotated[
        float, typer.Option(help="seconds that a client may take to send a request")
    ] = DEFAULTS.limits.receive_s,
    stuck_s: Annotated[
        float, typer.Option(help="a batch that runs for longer ends its worker; a new one is started")
    ] = DEFAULTS.stuck_s,
    api_keys: Annotated[
        Path | None, typer.Option(help="file with API keys, one a line (or set BREAKEVEN_API_KEYS)")
    ] = None,
    tls_certificate: Annotated[Path | None, typer.Option(help="PEM file; with --tls-key the port speaks TLS")] = None,
    tls_key: Annotated[Path | None, typer.Option(help="PEM file")] = None,
    memory_mb: Annotated[
        int | None, typer.Option(help="cap on private memory a worker, MB  [default: the profile's]")
    ] = None,
    access_log: Annotated[bool, typer.Option("--access-log", help="one JSON line for every inference request")] = False,
) -> None:
    """Serve a variant of a bundle over HTTP: Open Inference Protocol, Hugging Face form and KServe v1."""
    settings = ServeSettings(
        bundle=bundle,
        variant=variant,
        profile=profile,
        host=host,
        port=port,
        policy=policy,
        threads=threads,
        num_workers=workers,
        slo_s=None if slo_ms is None else slo_ms / 1e3,
        max_batch=max_batch,
        batch_delay_s=batch_delay_ms / 1e3,
        token_budget=token_budget,
        queue_tokens=queue_tokens,
        repository=repository,
        keep_alive_s=keep_alive_s,
        drain_s=drain_s,
        stuck_s=stuck_s,
        limits=DEFAULTS.limits.model_copy(update={"receive_s": receive_s}),
        shutdown_delay_s=shutdown_delay_s,
        api_keys_file=api_keys,
        tls_certificate=tls_certificate,
        tls_key=tls_key,
        memory_bytes=None if memory_mb is None else memory_mb * 2**20,
        access_log=access_log,
    )
    Bundle(bundle)  # a missing or damaged manifest is told before anything is started
    from serve.supervisor import serve as run

    raise typer.Exit(run(settings))


def main() -> None:
    """Run the command; a user's mistake is one line on standard error and exit status 1."""
    try:
        typer.run(serve)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
