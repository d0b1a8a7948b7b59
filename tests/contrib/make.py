#!/usr/bin/env python3
"""Models of single operators of com.microsoft, and what ONNX Runtime makes of them.

    tests/contrib/make.py       (of a Python with onnx and onnxruntime)

Each folder gets `model.onnx`, `input_N.pb` and `output_N.pb`, as ONNX's own test data has them. They are
kept, so that the tests need no ONNX Runtime; run this after adding a case.
"""
import pathlib
import shutil

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper

HERE = pathlib.Path(__file__).resolve().parent
rng = np.random.default_rng(0)


def u8(*shape):
    return rng.integers(0, 256, shape).astype(np.uint8)


def i8(*shape):
    return rng.integers(-128, 128, shape).astype(np.int8)


def floats(*shape):
    return rng.uniform(-1, 1, shape).astype(np.float32)


def scale(*shape):
    """No two of these are alike, so that sums seldom lie in the middle between two integers."""
    return rng.uniform(0.011, 0.039, shape).astype(np.float32)


def zero():
    return np.uint8(rng.integers(100, 150))


class Given:
    """A value that the model does not know."""

    def __init__(self, value):
        self.value = value


def case(name, op, inputs, outputs=1, **attributes):
    names, ports, constants, given = [], [], [], []
    for i, value in enumerate(inputs):
        names.append("" if value is None else f"i{i}")
        if isinstance(value, Given):
            array = np.asarray(value.value)
            kind = helper.np_dtype_to_tensor_dtype(array.dtype)
            ports.append(helper.make_tensor_value_info(names[-1], kind, array.shape))
            given.append((names[-1], array))
        elif value is not None:
            constants.append(numpy_helper.from_array(np.asarray(value), names[-1]))
    results = [f"y{i}" for i in range(outputs)]
    node = helper.make_node(op, names, results, name=op, domain="com.microsoft", **attributes)
    infos = [onnx.ValueInfoProto(name=result) for result in results]
    graph = helper.make_graph([node], name, ports, infos, constants)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    found = session.run(None, dict(given))
    folder = HERE / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    onnx.save(model, folder / "model.onnx")
    for kind, arrays in (("input", [array for _, array in given]), ("output", found)):
        for i, array in enumerate(arrays):
            tensor = numpy_helper.from_array(np.asarray(array))
            (folder / f"{kind}_{i}.pb").write_bytes(tensor.SerializeToString())


def main():
    a, b = Given(u8(5, 16)), i8(16, 7)
    bias = rng.integers(-999, 999, 7).astype(np.int32)
    case("qgemm", "QGemm", [a, scale(), zero(), b, scale(7), np.zeros(7, np.int8), bias, np.float32(0.5), zero()])
    case("qgemm_float", "QGemm", [a, scale(), zero(), b, scale(), np.int8(0), bias])
    case("qgemm_turned", "QGemm", [a, scale(), zero(), i8(7, 16), scale(), np.int8(0), None, np.float32(0.3), zero()],
         transB=1, alpha=0.5)
    case("qlinear_where", "QLinearWhere",
         [Given(rng.integers(0, 2, (4, 5)).astype(bool)), Given(u8(4, 5)), scale(), zero(), Given(u8(1, 5)), scale(),
          zero(), scale(), zero()])
    hidden = 16
    case("qattention", "QAttention",
         [Given(u8(2, 5, hidden)), i8(hidden, 3 * hidden), floats(3 * hidden), scale(), scale(),
          Given(np.array([5, 3], np.int32)), zero(), np.int8(0)], num_heads=4)
    case("qattention_causal", "QAttention",
         [Given(u8(2, 5, hidden)), i8(hidden, 3 * hidden), floats(3 * hidden), scale(), scale(3 * hidden), None, zero(),
          np.zeros(3 * hidden, np.int8)], num_heads=4, unidirectional=1)
    ids = rng.integers(0, 9, (2, 5)).astype(np.int32)
    segments = rng.integers(0, 2, (2, 5)).astype(np.int32)
    tables = [u8(9, 8), u8(12, 8), u8(2, 8), u8(8), u8(8)]
    case("qembed", "QEmbedLayerNormalization",
         [Given(ids), Given(segments), *tables, Given(np.ones((2, 5), np.int32)), *[scale() for _ in range(5)],
          *[zero() for _ in range(5)]], outputs=2)
    rows = Given(rng.integers(0, 6, (2, 3)).astype(np.int64))
    block = dict(block_size=16, gather_axis=0, quantize_axis=1)
    case("gather_block", "GatherBlockQuantized", [u8(6, 32), rows, scale(6, 4)], bits=4, **block)
    case("gather_block_zeros", "GatherBlockQuantized", [u8(6, 32), rows, scale(6, 4), u8(6, 2)], bits=4, **block)
    case("gather_block_bytes", "GatherBlockQuantized", [u8(6, 64), rows, scale(6, 4), u8(6, 4)], bits=8, **block)
    case("qlinear_add", "QLinearAdd", [Given(u8(4, 5)), scale(), zero(), Given(u8(4, 5)), scale(), zero(), scale(), zero()])
    case("qlinear_mul", "QLinearMul", [Given(u8(4, 5)), scale(), zero(), Given(u8(4, 5)), scale(), zero(), scale(), zero()])
    case("qlinear_sigmoid", "QLinearSigmoid", [Given(u8(4, 5)), scale(), zero(), np.float32(1 / 256), np.uint8(0)])
    case("qlinear_leaky_relu", "QLinearLeakyRelu", [Given(u8(4, 5)), scale(), zero(), scale(), zero()], alpha=0.1)
    case("qlinear_concat", "QLinearConcat",
         [scale(), zero(), Given(u8(2, 5)), scale(), zero(), Given(u8(3, 5)), scale(), zero()], axis=0)
    case("qlinear_average", "QLinearGlobalAveragePool", [Given(u8(2, 3, 4, 5)), scale(), zero(), scale(), zero()])
    case("qlinear_pool", "QLinearAveragePool", [Given(u8(2, 3, 6, 6)), scale(), zero(), scale(), zero()],
         kernel_shape=[3, 3], pads=[1, 1, 1, 1])
    case("to_float", "MatMulIntegerToFloat", [Given(u8(5, 16)), b, scale(), scale(7), zero(), np.zeros(7, np.int8), floats(7)])
    case("dynamic_matmul", "DynamicQuantizeMatMul", [Given(floats(5, 16)), b, scale(), np.int8(3), floats(7)])
    # The first operand has 8 bits, too, in blocks of its rows.
    product = dict(N=24, bits=4, block_size=32, accuracy_level=4)
    case("nbits_bytes", "MatMulNBits", [Given(floats(12, 128)), u8(24, 4, 16), scale(24, 4)], K=128, **product)
    case("nbits_bytes_zeros", "MatMulNBits", [Given(floats(2, 7, 72)), u8(24, 3, 16), scale(24, 3), u8(24, 2)], K=72,
         **product)


if __name__ == "__main__":
    main()
