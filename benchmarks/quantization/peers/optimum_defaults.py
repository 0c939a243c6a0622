"""optimum's dynamic INT8 by its preset for a CPU: ``optimum_defaults.py CHECKPOINT OUT.onnx {avx2,avx512_vnni}``."""

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from optimum.onnxruntime import AutoQuantizationConfig, ORTModelForSequenceClassification, ORTQuantizer

checkpoint, out, preset = sys.argv[1:]
with TemporaryDirectory() as folder:
    ORTModelForSequenceClassification.from_pretrained(checkpoint, export=True).save_pretrained(folder)
    config = getattr(AutoQuantizationConfig, preset)(is_static=False)
    ORTQuantizer.from_pretrained(folder).quantize(save_dir=folder, quantization_config=config)
    Path(folder, "model_quantized.onnx").rename(out)
