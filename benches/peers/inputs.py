"""Seeded inputs of a model, for every engine the same."""

# Integers of these inputs are below a bound of their own; others are ids of words.
BOUNDS = {"attention_mask": 2, "token_type_ids": 2, "position_ids": 128}
WORDS = 1000


def seeded(session, seed=0):
    """By name, of the shapes that the model declares; `session` is ONNX Runtime's."""
    import numpy as np
    random = np.random.default_rng(seed)
    inputs = {}
    for port in session.get_inputs():
        if port.type == "tensor(int64)":
            inputs[port.name] = random.integers(0, BOUNDS.get(port.name, WORDS), port.shape, dtype=np.int64)
        else:
            kind = np.float16 if port.type == "tensor(float16)" else np.float32
            inputs[port.name] = random.standard_normal(port.shape, dtype=np.float32).astype(kind)
    return inputs
