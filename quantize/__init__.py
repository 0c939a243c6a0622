"""Exports checkpoints to ONNX, makes FP16 and INT8 variants of them and verifies each."""
