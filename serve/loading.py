"""From a bundle on disk to a warm model: hashes, session, goldens, batch times, then the lane."""

from __future__ import annotations

import asyncio
import logging
import time
from functools import partial

from serve.backend import CPU_PROVIDER, Backend
from serve.backlog import Backlog
from serve.card import Card
from serve.caveats import caveats
from serve.config import PROFILES, PolicyName, Profile, ServeSettings
from serve.curve import BatchCurve, ladder, measure
from serve.engine import Engine
from serve.estimate import TokenEstimate
from serve.lane import Lane
from serve.model import Model, expire
from serve.policies import ByLength, InOrder, Policy
from serve.tally import Tally
from serve.turns import share_a_core
from testbed import machine
from testbed.bundle import Bundle
from testbed.errors import UserError
from testbed.records.bundle import BundleManifest, Variant
from testbed.records.load import Proof

logger = logging.getLogger(__name__)

# A batch may take up this share of the deadline: what arrives just after it has begun waits for it, then for its own.
BATCH_SHARE_OF_SLO = 0.25


def load_model(bundle: Bundle, settings: ServeSettings, *, loop: asyncio.AbstractEventLoop) -> Model:
    """Load, verify and warm a variant, and start its lane; blocks for about a second: call it on a thread of its own.

    Args:
        bundle: where it comes from.
        settings: how it is served.
        loop: the event loop on which it will be asked.

    Raises:
        UserError: anything about the bundle, the variant or the profile that cannot be served.
    """
    begin_s = time.monotonic()
    manifest, profile = bundle.manifest, PROFILES[settings.profile]
    variant = pick_variant(manifest, settings)
    policy_name = pick_policy(variant, settings)
    warn_of_precision(variant, profile)
    engine, proof = open_engine(bundle, variant, settings, packed=policy_name == "packed")
    engine.check_goldens(
        manifest.goldens_of(variant), num_labels=len(manifest.labels), tolerance=golden_tolerance(variant)
    )
    slo_s = settings.slo_s or profile.slo_s
    batches = ladder(manifest.lengths, max_texts=1 if policy_name == "none" else settings.max_batch)
    words = " ".join(golden.text for golden in manifest.goldens).split()
    clock = time.thread_time if profile.provider == CPU_PROVIDER and proof.threads == 1 else time.perf_counter
    curve = BatchCurve(measure(engine.compute, batches, words, clock=clock))
    policy = make_policy(policy_name, settings, curve, slo_s=slo_s)
    card = Card.of(manifest, variant, profile=profile.name, policy_name=policy_name, policy=policy, proof=proof)
    tally = Tally(card.name)
    backlog = Backlog(
        policy=policy,
        curve=curve,
        max_tokens=settings.queue_tokens,
        on_expired=partial(expire, loop=loop),
    )
    estimate = TokenEstimate(manifest)
    lane = Lane(backlog=backlog, engine=engine, estimate=estimate, loop=loop, tally=tally, shares_core=share_a_core())
    engine.give_memory_back()
    log_warm(card, curve, load_s=time.monotonic() - begin_s)
    return Model(
        card=card,
        backlog=backlog,
        lane=lane,
        estimate=estimate,
        vocab_size=engine.tokenizer.vocab_size,
        slo_s=slo_s,
        tally=tally,
    )


def open_engine(bundle: Bundle, variant: Variant, settings: ServeSettings, *, packed: bool) -> tuple[Engine, Proof]:
    """Check every hash, open the session, and say what runs where; raises UserError."""
    tokenizer = bundle.tokenizer(variant)
    bundle.model_file(variant)
    relative = variant.packed_path if packed and variant.packed_path else variant.path
    threads = num_threads(settings)
    backend = Backend(bundle.folder / relative, profile=PROFILES[settings.profile], threads=threads)
    proof = Proof(
        providers=backend.providers,
        isa=machine.isa(),
        threads=threads,
        precision=variant.precision,
        file_sha256=variant.files[relative],
    )
    pad_token_id = bundle.pad_token_id(variant)
    return Engine(tokenizer=tokenizer, backend=backend, packed=packed, pad_token_id=pad_token_id), proof


def num_threads(settings: ServeSettings) -> int:
    """Return the intra-op threads of one worker: as told, else its share of the cores that the process may use."""
    if settings.threads is not None:
        return settings.threads
    share = max(1, int(machine.usable_cores() / settings.num_workers))
    most = PROFILES[settings.profile].max_threads
    return share if most is None else min(share, most)


def pick_variant(manifest: BundleManifest, settings: ServeSettings) -> Variant:
    """Return the variant to serve.

    Raises:
        UserError: none of that name, or several and none named.
    """
    if settings.variant is None:
        if len(manifest.variants) == 1:
            return manifest.variants[0]
        names = ", ".join(variant.name for variant in manifest.variants)
        msg = f"bundle {manifest.name!r} has several variants; help: --variant with one of {names}"
        raise UserError(msg)
    return manifest.variant(settings.variant)


def pick_policy(variant: Variant, settings: ServeSettings) -> PolicyName:
    """Return the policy: as told, else packed where the variant has that layout, else sorted.

    Raises:
        UserError: packed was asked for, and the variant cannot be packed.
    """
    if settings.policy == "packed" and variant.packed_path is None:
        msg = f"variant {variant.name!r} has no packed layout; help: --policy sorted, fixed or none"
        raise UserError(msg)
    if settings.policy is not None:
        return settings.policy
    return "packed" if variant.packed_path is not None else "sorted"


def make_policy(name: PolicyName, settings: ServeSettings, curve: BatchCurve, *, slo_s: float) -> Policy:
    """Return the policy, its token budget taken from the measured batch times unless it was given."""
    budget = settings.token_budget or curve.best_tokens(within_s=slo_s * BATCH_SHARE_OF_SLO)
    if name == "none":
        return InOrder(packed=False, max_texts=1, max_tokens=budget)
    if name == "fixed":
        unbounded = settings.queue_tokens
        return InOrder(packed=False, max_texts=settings.max_batch, max_tokens=unbounded, delay_s=settings.batch_delay_s)
    if name == "packed":
        return InOrder(packed=True, max_texts=settings.max_batch, max_tokens=budget)
    return ByLength(max_texts=settings.max_batch, max_tokens=budget)


def golden_tolerance(variant: Variant) -> float:
    """Return how far a golden text's logits may be from the ones of its FP32 parent.

    Twice what verification saw on the whole test split: other kernels on other machines round differently, which a
    damaged model or a wrong tokenizer exceeds by far. FP32 itself is held to 1e-3.
    """
    return max(1e-3, 2 * variant.verification.max_logit_difference)


def warn_of_precision(variant: Variant, profile: Profile) -> None:
    """Say what a user should know about this precision on this profile."""
    if variant.precision == "fp16" and profile.provider == CPU_PROVIDER:
        logger.warning(
            "fp16 on a CPU saves disk, not time or memory: the CPU computes in fp32 and casts; help: serve %s-fp32 or "
            "an int8 variant",
            variant.model,
        )
    for caveat in caveats(variant, machine.isa()):
        logger.warning("variant %s: %s", variant.name, caveat)


def log_warm(card: Card, curve: BatchCurve, *, load_s: float) -> None:
    """Log what was measured at warm-up."""
    figures = {
        "model": card.name,
        "version": card.version,
        "variant": card.variant.name,
        "policy": card.policy,
        "threads": card.proof.threads,
        "token_budget": card.token_budget,
        "batch_fixed_s": round(curve.fixed_s, 6),
        "batch_per_token_s": round(curve.per_token_s, 9),
        "batch_per_square_token_s": round(curve.per_square_s, 12),
        "load_s": round(load_s, 3),
    }
    logger.info("model warm", extra={"figures": figures})
