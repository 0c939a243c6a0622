"""Where a training step's time goes, operator group by operator group, and how fast its products could be at best.

    python -m benchmarks.training.step_profile [--threads 1 2] [--dtypes bf16 fp32] [--rows 32] [--length 14] [--json F]

The step is the loop's own: working weights, quick operators, clipping in the fused AdamW. The products' best rate is
that of the same shapes alone, one after the other on warm caches: the share of it that the step reaches is what its
products lose to their surroundings; the share of the square GEMM peak is what the shapes lose by themselves.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile

from testbed.allocator import freed_kept
from train.ceilings import gemm_flops_per_s, product_flops_per_s
from train.loop import clip_in_step, parameter_groups
from train.model import load_classifier
from train.operators import quick
from train.precision import Precision
from train.pretrained import model_folder
from train.processes import Processes
from train.vocabulary import Vocabulary
from train.weights import WorkingWeights

CPU = torch.device("cpu")
# Words of an operator's name to the group it is counted in; the first that fits.
GROUPS = (
    ("products", ("addmm", "mm", "bmm")),
    ("optimizer", ("fused_adamw", "Optimizer", "foreach", "linalg_vector_norm")),
    ("casts and copies", ("copy", "to_copy")),
    ("dropout", ("random_", "_Dropout", "bitwise", "bernoulli")),
    ("softmax", ("softmax", "_ShortSoftmax", "amax", "exp")),
    ("activation", ("gelu", "tanh")),
    ("normalisation", ("layer_norm",)),
    ("embeddings", ("embedding", "index_select", "fill_", "zero_")),
)
STEPS = 10
# Words that a small data set uses, such as TREC: the loop trains the rows of these alone.
VOCABULARY = 8000


def main() -> None:
    """Print one block for each dtype and thread count."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--dtypes", nargs="+", choices=["bf16", "fp32"], default=["bf16", "fp32"])
    parser.add_argument("--rows", type=int, default=32)
    parser.add_argument("--length", type=int, default=14)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    found = []
    for threads in options.threads:
        torch.set_num_threads(threads)
        gemm_flops_per_s.cache_clear()
        for dtype in options.dtypes:
            figures = measure(dtype, options.rows, options.length)
            found.append(figures)
            groups = ", ".join(f"{name} {share:.0%}" for name, share in figures["shares"].items())
            print(
                f"{dtype}, {threads} threads, {options.rows} × {options.length}: {figures['step_s'] * 1e3:.0f} ms; "
                f"{groups}; products: {figures['products_in_step']:.0%} of the square peak inside the step, "
                f"{figures['products_alone']:.0%} alone at these shapes; the step reaches {figures['step_rate']:.0%}"
            )
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def measure(dtype: str, rows: int, length: int) -> dict[str, Any]:
    """Return one block's figures; rates are shares of the square GEMM peak."""
    step, model = one_step(dtype, rows, length)
    with freed_kept():
        for _ in range(3):
            step()
        times = [timed(step) for _ in range(STEPS)]
        with profile(activities=[ProfilerActivity.CPU]) as profiled:
            for _ in range(STEPS):
                step()
    averages = [event for event in profiled.key_averages() if event.self_cpu_time_total > 0]
    total_us = sum(event.self_cpu_time_total for event in averages)
    shares = dict.fromkeys([name for name, _ in GROUPS], 0.0) | {"other": 0.0}
    for event in averages:
        shares[group_of(event.key)] += event.self_cpu_time_total / total_us
    shapes = [(rows * length, *layer.weight.shape) for layer in model.modules() if isinstance(layer, nn.Linear)]
    flops = sum(6.0 * tokens * out * into for tokens, out, into in shapes)
    alone_s = sum(product_seconds(dtype, *shape) for shape in shapes)
    peak = gemm_flops_per_s(dtype, CPU)
    step_s = min(times)
    return {
        "dtype": dtype,
        "threads": torch.get_num_threads(),
        "rows": rows,
        "length": length,
        "step_s": step_s,
        "shares": shares,
        "gemm_flops_per_s": peak,
        "products_alone": flops / alone_s / peak,
        "products_in_step": flops / (shares["products"] * step_s) / peak,
        "step_rate": flops / step_s / peak,
    }


def one_step(dtype: str, rows: int, length: int) -> tuple[Callable[[], None], nn.Module]:
    """Return a training step of MiniLM-L6 on random tokens, as the loop does it, and its model."""
    model = load_classifier(model_folder("minilm-l6"), list("abcdef"), seed=0).train()
    Vocabulary([range(VOCABULARY)], pad_token_id=0).shrink(model)
    precision, alone = Precision(dtype, "asked for"), Processes(rank=0, world_size=1, local_rank=0, device=CPU)
    weights = WorkingWeights(model, alone.working_dtype(dtype))
    groups = parameter_groups(model, 0.01)
    for group in groups:
        group["params"] = [weights.trained[parameter] for parameter in group["params"]]
    optimizer = torch.optim.AdamW(groups, lr=1e-5, fused=True)
    ids = torch.randint(5, VOCABULARY, (rows, length))
    mask, labels = torch.ones_like(ids), torch.randint(0, 6, (rows,))

    def step() -> None:
        with precision.autocast(CPU), quick(CPU):
            logits = model(input_ids=ids, attention_mask=mask).logits
            loss = nn.functional.cross_entropy(logits.float(), labels)
        loss.backward()  # type: ignore[no-untyped-call]
        clip_in_step(optimizer, nn.utils.get_total_norm(weights.take_gradients()), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        weights.give()

    return step, model


def product_seconds(dtype: str, tokens: int, out: int, into: int) -> float:
    """Return the seconds of one linear layer's three products alone: output, input's and weight's gradient."""
    shapes = ((tokens, into, out), (tokens, out, into), (out, tokens, into))
    work = 2.0 * tokens * out * into
    return sum(work / product_flops_per_s(dtype, CPU, shape, seconds=0.02) for shape in shapes)


def group_of(name: str) -> str:
    """Return the group of an operator."""
    return next((group for group, words in GROUPS if any(word in name for word in words)), "other")


def timed(work: Callable[[], None]) -> float:
    """Return the seconds of one call."""
    begin_s = time.perf_counter()
    work()
    return time.perf_counter() - begin_s


if __name__ == "__main__":
    main()
