"""NNCF's post-training INT8 for a transformer: ``nncf_static.py FP32.onnx ROWS.json OUT.xml PAD``."""

import json
import sys
from pathlib import Path

import nncf
import numpy as np
import openvino

source, rows, out, pad = sys.argv[1:]
core = openvino.Core()
model = core.read_model(source)
names = [entry.get_any_name() for entry in model.inputs]


def feed(row: list[int]) -> dict[str, np.ndarray]:
    """Return one text's inputs."""
    ids = np.array([row], dtype=np.int64)
    arrays = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
    return {name: arrays[name] for name in names}


calibration = nncf.Dataset([feed(row) for row in json.loads(Path(rows).read_text())])
quantized = nncf.quantize(model, calibration, model_type=nncf.ModelType.TRANSFORMER, subset_size=256)
openvino.save_model(quantized, out, compress_to_fp16=False)
