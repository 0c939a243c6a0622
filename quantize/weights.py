"""Weight-only quantization: ONNX Runtime's MatMulNBits, blocks of weights with a scale each."""

from __future__ import annotations

import onnx

from quantize.products import product_groups

BLOCK = 32
# 4: activations are quantized to INT8 row by row and block by block inside the kernel, the only fast one on a CPU.
ACCURACY_LEVEL = 4


def quantize_weights(model: onnx.ModelProto, *, bits: int, keep: frozenset[int] = frozenset()) -> onnx.ModelProto:
    """Return a copy of an FP32 model with its products by constant matrices as MatMulNBits.

    Args:
        model: FP32, either layout.
        bits: of a weight, 4 or 8.
        keep: places of the product groups that stay FP32.
    """
    from onnxruntime.quantization.matmul_nbits_quantizer import DefaultWeightOnlyQuantConfig, MatMulNBitsQuantizer

    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    groups = product_groups(model)
    config = DefaultWeightOnlyQuantConfig(
        block_size=BLOCK, is_symmetric=True, accuracy_level=ACCURACY_LEVEL, bits=bits, op_types_to_quantize=("MatMul",)
    )
    quantizer = MatMulNBitsQuantizer(
        copy,
        block_size=BLOCK,
        is_symmetric=True,
        accuracy_level=ACCURACY_LEVEL,
        nodes_to_exclude=[node.name for place in keep for node in groups[place].nodes],
        op_types_to_quantize=("MatMul",),
        algo_config=config,
    )
    quantizer.process()
    quantized: onnx.ModelProto = quantizer.model.model
    return quantized
