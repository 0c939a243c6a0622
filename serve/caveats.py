"""What a user should know of a variant on this machine."""

from __future__ import annotations

from collections.abc import Sequence

from testbed.records import Variant


def caveats(variant: Variant, here: Sequence[str]) -> tuple[str, ...]:
    """Return the manifest's warning of a variant, and one where this CPU has another instruction set than its maker's.

    Args:
        variant: of the bundle; its ``isa`` is where it was verified and measured.
        here: the decisive flags of this CPU (``testbed.machine.isa``).
    """
    found = [variant.warning] if variant.warning else []
    lacks, adds = sorted(set(variant.isa) - set(here)), sorted(set(here) - set(variant.isa))
    if lacks or adds:
        words = [f"lacks {', '.join(lacks)}"] * bool(lacks) + [f"has {', '.join(adds)} besides"] * bool(adds)
        found.append(
            f"verified on another instruction set (this CPU {' and '.join(words)}): its speed and accuracy were not "
            "measured here; help: run `breakeven quantize` on this machine"
        )
    return tuple(found)
