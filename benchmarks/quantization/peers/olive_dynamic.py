"""Olive's dynamic INT8 pass after its transformer optimisation: ``olive_dynamic.py FP32.onnx OUT.onnx HEADS WIDTH``."""

import shutil
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from olive.model import ONNXModelHandler
from olive.passes.olive_pass import create_pass_from_dict
from olive.passes.onnx.quantization import OnnxDynamicQuantization
from olive.passes.onnx.transformer_optimization import OrtTransformersOptimization

source, out, heads, width = sys.argv[1:]
with TemporaryDirectory() as folder:
    model = ONNXModelHandler(source)
    shape = {"model_type": "bert", "num_heads": int(heads), "hidden_size": int(width)}
    for number, (kind, config) in enumerate([(OrtTransformersOptimization, shape), (OnnxDynamicQuantization, {})]):
        made = create_pass_from_dict(kind, config, disable_search=True)
        model = made.run(model, str(Path(folder, f"step{number}")))
    shutil.copyfile(model.model_path, out)
