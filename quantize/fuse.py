"""ONNX Runtime's transformer fusions: attention, Gelu, LayerNormalization, each as one operator."""

from __future__ import annotations

import logging
from pathlib import Path

import onnx

from quantize.checkpoint import Checkpoint


def fuse(path: Path, checkpoint: Checkpoint) -> onnx.ModelProto:
    """Return the FP32 export with its patterns fused; what no pattern fits (DeBERTa's attention) stays as it is.

    Queries, keys and values keep a product each (MultiHeadAttention rather than Attention, which hides the product
    inside), so that the precision transformations see every product. The mask stays raw: the index form assumes that
    padding is on the right. SkipLayerNormalization is left out: ONNX Runtime's CPU kernel of it takes five times as
    long as Add and LayerNormalization; for CUDA, ONNX Runtime fuses them by itself when it loads the graph.
    """
    from onnxruntime.transformers.fusion_options import FusionOptions
    from onnxruntime.transformers.optimizer import optimize_model

    options = FusionOptions("bert")
    options.use_multi_head_attention = True
    options.use_raw_attention_mask(True)
    options.enable_embed_layer_norm = False
    # It serves SkipLayerNormalization; run over the whole model for each Shape, it takes minutes of DeBERTa.
    options.enable_shape_inference = False
    options.enable_skip_layer_norm = False
    options.enable_bias_skip_layer_norm = False
    logger = logging.getLogger("onnxruntime.transformers")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        fused = optimize_model(
            str(path),
            model_type="bert",
            num_heads=checkpoint.model.config.num_attention_heads,
            hidden_size=checkpoint.model.config.hidden_size,
            optimization_options=options,
            opt_level=1,
        )
    finally:
        logger.setLevel(level)
    fused.topological_sort()
    model: onnx.ModelProto = fused.model
    return model
