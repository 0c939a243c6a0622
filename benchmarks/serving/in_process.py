"""The peers' classifier without a server: texts a second by batch size. Run by compare.py, pinned to one core."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).with_name("peers")))

from classifier import Classifier

SECONDS, SIZES = 1.5, (1, 4, 8)


def rate(classify: Classifier, texts: list[str], size: int) -> float:
    """Return texts a second in batches of ``size``, tokenization included."""
    classify(texts[:size])
    done, begin_s = 0, time.perf_counter()
    while time.perf_counter() - begin_s < SECONDS:
        start = done % (len(texts) - size)
        classify(texts[start : start + size])
        done += size
    return done / (time.perf_counter() - begin_s)


if __name__ == "__main__":
    bundle, variant, file = sys.argv[1:]
    lines = Path(file).read_text(encoding="utf-8").splitlines()
    texts = [json.loads(line)["text"] for line in lines]
    classifier = Classifier(Path(bundle), variant)
    print(json.dumps({str(size): rate(classifier, texts, size) for size in SIZES}))
