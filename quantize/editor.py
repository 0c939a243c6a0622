"""Changes a graph: looks constants, producers and consumers up, adds nodes, replaces nodes, keeps the order valid."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

CONTRIB = "com.microsoft"


class Editor:
    """A copy of a model under change; ``finish`` returns it.

    Args:
        model: stays as it is.
    """

    def __init__(self, model: onnx.ModelProto) -> None:
        self._model = onnx.ModelProto()
        self._model.CopyFrom(model)
        self.graph = self._model.graph
        self._initializers = {tensor.name: tensor for tensor in self.graph.initializer}
        self._producers = {name: node for node in self.graph.node for name in node.output}
        self._consumers: dict[str, list[onnx.NodeProto]] = {}
        for node in self.graph.node:
            for name in node.input:
                self._consumers.setdefault(name, []).append(node)
        self._names = set(self._producers) | set(self._initializers)

    def nodes(self, operator: str) -> list[onnx.NodeProto]:
        """Return the nodes of one operator, in the graph's order."""
        return [node for node in self.graph.node if node.op_type == operator]

    def constant(self, name: str) -> NDArray[Any] | None:
        """Return an initializer's value, or None where the name is computed."""
        tensor = self._initializers.get(name)
        return None if tensor is None else numpy_helper.to_array(tensor)

    def producer(self, name: str) -> onnx.NodeProto | None:
        """Return the node that computes a value, or None for inputs and initializers."""
        return self._producers.get(name)

    def consumers(self, name: str) -> list[onnx.NodeProto]:
        """Return the nodes that read a value."""
        return self._consumers.get(name, [])

    def tensor(self, name: str, value: NDArray[Any] | np.generic) -> str:
        """Add an initializer, unless one of that name is there; return its name."""
        if name not in self._initializers:
            # ascontiguousarray makes a scalar one-dimensional.
            tensor = numpy_helper.from_array(np.ascontiguousarray(value).reshape(np.shape(value)), name)
            self.graph.initializer.append(tensor)
            self._initializers[name] = tensor
        return name

    def add(self, operator: str, inputs: Sequence[str], output: str, *, domain: str = "", **attributes: Any) -> str:  # noqa: ANN401 - whatever an ONNX attribute may be
        """Add a node with one output, unless that output is there; return the output's name."""
        if output not in self._producers:
            node = helper.make_node(operator, list(inputs), [output], name=output, domain=domain, **attributes)
            self.graph.node.append(node)
            self._producers[output] = node
            for name in inputs:
                self._consumers.setdefault(name, []).append(node)
        return output

    def split(self, source: str, sizes: str, outputs: Sequence[str], *, axis: int) -> None:
        """Add a Split of ``source`` into ``outputs``."""
        node = helper.make_node("Split", [source, sizes], list(outputs), name=f"{source}/split", axis=axis)
        self.graph.node.append(node)
        self._producers.update(dict.fromkeys(outputs, node))
        self._consumers.setdefault(source, []).append(node)

    def remove(self, node: onnx.NodeProto) -> None:
        """Take a node out; its outputs must be computed by another one before ``finish``."""
        self.graph.node.remove(node)
        for name in node.output:
            self._producers.pop(name, None)

    def set_input(self, node: onnx.NodeProto, index: int, name: str) -> None:
        """Let a node read another value."""
        node.input[index] = name
        self._consumers.setdefault(name, []).append(node)

    def finish(self) -> onnx.ModelProto:
        """Return the model with its nodes in order, without nodes and initializers that nobody reads."""
        self._drop_unread()
        self._sort()
        read = {name for node in self.graph.node for name in node.input}
        kept = [tensor for tensor in self.graph.initializer if tensor.name in read]
        del self.graph.initializer[:]
        self.graph.initializer.extend(kept)
        domains = {opset.domain for opset in self._model.opset_import}
        if CONTRIB not in domains and any(node.domain == CONTRIB for node in self.graph.node):
            self._model.opset_import.append(helper.make_opsetid(CONTRIB, 1))
        return self._model

    def _drop_unread(self) -> None:
        outputs = {entry.name for entry in self.graph.output}
        while True:
            read = outputs | {name for node in self.graph.node for name in node.input}
            unread = [node for node in self.graph.node if read.isdisjoint(node.output)]
            if not unread:
                return
            for node in unread:
                self.graph.node.remove(node)

    def _sort(self) -> None:
        known = {entry.name for entry in self.graph.input} | set(self._initializers) | {""}
        waiting = list(self.graph.node)
        ordered: list[onnx.NodeProto] = []
        while waiting:
            later = []
            for node in waiting:
                if known.issuperset(node.input):
                    ordered.append(node)
                    known.update(node.output)
                else:
                    later.append(node)
            assert len(later) < len(waiting), f"cycle or missing input at {later[0].name}"
            waiting = later
        del self.graph.node[:]
        self.graph.node.extend(ordered)
