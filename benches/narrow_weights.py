"""Models whose products have weights of few bits, made of models of floats: what quantisers of language models write."""
import numpy as np
import onnx
from onnx import helper, numpy_helper

BLOCK = 32


def packed(codes, bits):
    """Along the last axis, the first code in the lowest bits."""
    per_byte = 8 // bits
    pad = -codes.shape[-1] % per_byte
    codes = np.pad(codes, [(0, 0)] * (codes.ndim - 1) + [(0, pad)])
    fields = codes.reshape(*codes.shape[:-1], -1, per_byte)
    return sum(fields[..., i] << (bits * i) for i in range(per_byte)).astype(np.uint8)


def rounded(weight, bits):
    """Codes and scales of blocks along the first axis: scale * (code - half), where the largest of a block keeps its value."""
    k, n = weight.shape
    half = 1 << (bits - 1)
    blocks = np.pad(weight, [(0, -k % BLOCK), (0, 0)]).T.reshape(n, -1, BLOCK)
    largest = np.take_along_axis(blocks, np.abs(blocks).argmax(axis=-1)[..., None], axis=-1)
    scales = np.where(largest == 0, 1, largest / -half).astype(np.float32)
    codes = np.clip(np.rint(blocks / scales) + half, 0, 2 * half - 1).astype(np.uint8)
    return codes, scales[..., 0]


def narrow(path, bits, level=0):
    """Gives the products of the model's file with constant matrices weights of so many bits; says how many they are."""
    model = onnx.load(path)
    constants = {c.name: c for c in model.graph.initializer}
    made, replaced = [], 0
    for node in model.graph.node:
        weight = constants.get(node.input[1]) if node.op_type == "MatMul" else None
        if weight is None or len(weight.dims) != 2 or weight.data_type != onnx.TensorProto.FLOAT:
            made.append(node)
            continue
        codes, scales = rounded(numpy_helper.to_array(weight), bits)
        names = [f"{weight.name}_{part}" for part in ("codes", "scales")]
        if names[0] not in constants:
            tensors = [numpy_helper.from_array(value, name) for value, name in zip((packed(codes, bits), scales), names)]
            model.graph.initializer.extend(tensors)
            constants.update({tensor.name: tensor for tensor in tensors})
        k, n = weight.dims
        made.append(helper.make_node("MatMulNBits", [node.input[0], *names], node.output, name=node.name, domain="com.microsoft",
                                     K=k, N=n, bits=bits, block_size=BLOCK, accuracy_level=level))
        replaced += 1
    if not replaced:
        raise ValueError(f"{path}: no product has a constant matrix")
    read = {name for node in made for name in node.input}
    left = [c for c in model.graph.initializer if c.name in read]
    del model.graph.node[:], model.graph.initializer[:]
    model.graph.node.extend(made)
    model.graph.initializer.extend(left)
    if not any(opset.domain == "com.microsoft" for opset in model.opset_import):
        model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    onnx.save(model, path)
    return replaced
