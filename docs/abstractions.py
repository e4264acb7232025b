"""One small network, seen at every level: run it with `python docs/abstractions.py`.

Tensor    what users write
UOp       the graph that a Tensor stands for
schedule  kernels in the order in which they run
item      one of them: its graph, its source, its buffers, run by hand
"""

import numpy as np

from tinycore import Device, GlobalCounters, Tensor
from tinycore.engine.realize import compile_linear, get_runner
from tinycore.uop import Ops

# --- Tensor: nothing is computed by these lines
rng = np.random.default_rng(0)
x, w1, w2 = [rng.standard_normal(s).astype(np.float32) for s in ((4, 8), (8, 16), (16, 3))]
out = (Tensor(x).realize() @ Tensor(w1).realize()).relu() @ Tensor(w2).realize()
probabilities = out.softmax()
print("shape, dtype, device:", probabilities.shape, probabilities.dtype, probabilities.device)

# --- UOp: the value as a graph; equal nodes are one object
graph = probabilities.uop
ops = [u.op.name for u in graph.toposort()]
print(f"graph of {len(ops)} nodes:", ", ".join(sorted(set(ops))))
assert (Tensor.ones(3) + 1).uop.src[1] is (Tensor.zeros(3) + 1).uop.src[1]

# --- schedule: the graph is cut into kernels, each writes a buffer
linear = probabilities.schedule_linear()
print("schedule:", [call.src[0].op.name for call in linear.src])

# --- each item: what it computes, what it was compiled to, and what happens when it runs
for call, compiled in zip(linear.src, compile_linear(linear).src, strict=True):
    kernel, buffers = call.src[0], [ref.buffer.ensure_allocated() for ref in call.src[1:]]
    assert kernel.op is Ops.SINK
    runner = get_runner(Device.DEFAULT, kernel)
    source = compiled.src[0].src[3].arg
    print(
        f"{runner.display_name}: {len(kernel.toposort())} nodes, {len(source)} letters of source,"
    )
    print("    buffers of", [b.size for b in buffers])
    runner(buffers, wait=True)
print("kernels run:", GlobalCounters.kernel_count)

# --- and the Tensor names the buffer that the last item wrote
expected = np.exp(np.maximum(x @ w1, 0) @ w2)
expected /= expected.sum(axis=1, keepdims=True)
np.testing.assert_allclose(probabilities.numpy(), expected, rtol=1e-5)
print("as numpy has it")
