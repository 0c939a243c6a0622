"""The FP32 export as OpenVINO takes it: ``openvino_fp32.py FP32.onnx OUT.xml``."""

import sys

import openvino

source, out = sys.argv[1:]
openvino.save_model(openvino.Core().read_model(source), out, compress_to_fp16=False)
