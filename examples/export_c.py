"""A captured training step as one C file: DEV=CPU:CLANG python examples/export_c.py FILE.c [STEPS]

The file holds the kernels, the weights as they are after the capture, and a main() that does STEPS
(5) more steps on one batch and prints the loss of each. Any C compiler with gcc's vector types will
do: gcc -O2 -march=native -ffp-contract=off FILE.c -lm -o step. The same losses, computed here, are
printed.
"""

import re
import sys

from tinycore import Device, Tensor, TinyJit, nn
from tinycore.device import Slot
from tinycore.nn.optim import SGD
from tinycore.nn.state import get_parameters


class Net:
    def __init__(self):
        self.conv, self.last = nn.Conv2d(1, 4, 3), nn.Linear(4 * 5 * 5, 10)

    def __call__(self, x):
        return self.last(self.conv(x).relu().max_pool2d().flatten(1))


def captured():
    """(the step, its inputs), after the two calls that capture it."""
    Tensor.manual_seed(0)
    net = Net()
    optimiser = SGD(get_parameters(net), lr=0.1, momentum=0.9)

    @TinyJit
    def step(x, y):
        with Tensor.train():
            optimiser.zero_grad()
            loss = net(x).sparse_categorical_crossentropy(y).backward()
            optimiser.step()
        return loss.realize()

    x, y = Tensor.randn(8, 1, 12, 12).realize(), Tensor.randint(8, high=10).realize()
    for _ in range(2):
        step(x, y)
    return step, (x, y)


class Memory:
    """Every buffer of the step as an array of bytes in C."""

    def __init__(self, inputs):
        self.inputs, self.arrays, self.names = inputs, [], {}

    def place(self, ref):
        """The C expression for the address of a Buffer or an open Slot."""
        if isinstance(ref, Slot):
            given = ref.index < len(self.inputs)
            buffer = self.inputs[ref.index].uop.base.buffer if given else None
            return self.array(f"slot{ref.index}", buffer, 1 << 12)
        name = self.names.setdefault(id(ref.base), f"buffer{len(self.names)}")
        return f"({self.array(name, ref.base, 0)} + {ref.offset})"

    def array(self, name, buffer, size):
        if name not in [n for n, _ in self.arrays]:
            if buffer is not None and buffer.is_allocated():
                data = bytes(buffer.as_memoryview())
                body = f"[{len(data)}] = {{{','.join(map(str, data))}}}"
            else:
                body = f"[{buffer.nbytes if buffer is not None else size}]"
            self.arrays.append((name, f"static _Alignas(64) unsigned char {name}{body};"))
        return name


def as_c(step, inputs, steps):
    """The C program."""
    items = step.captured.items
    memory, shared, kernels, calls = Memory(inputs), {}, {}, []
    for item in items:
        refs = [memory.place(r) for r in item.refs]
        if item.compiled is None:
            calls.append(f"memcpy({refs[0]}, {refs[1]}, {item.nbytes});")
            continue
        info, (head, body) = item.compiled.info, halves(item)
        shared.update(dict.fromkeys(head))
        name = kernels.setdefault(body, f"k{len(kernels)}_{info.name}")
        block = ", ".join(f"(i64){r}" for r in refs)
        calls.append(f"{name}((i64[]){{{block}}}, 0, {info.threads});")
    loss = next(o.slot for o in step.captured.outputs)
    return "\n".join(
        [
            "#include <stdio.h>\n#include <string.h>",
            *shared,
            *[a for _, a in memory.arrays],
            *[renamed(body, name) for body, name in kernels.items()],
            f"int main(void) {{\n  for (int n = 0; n < {steps}; n++) {{",
            *[f"    {c}" for c in calls],
            f'    float loss; memcpy(&loss, slot{loss}, 4); printf("%.6f\\n", loss);\n  }}\n}}\n',
        ]
    )


def halves(item):
    """(what many kernels begin with, line by line; the kernel itself) of an item's source."""
    lines = item.compiled.program.src[3].arg.splitlines()
    start = next(k for k, line in enumerate(lines) if line.startswith("const i64"))
    return lines[:start], "\n".join(lines[start:])


def renamed(body, name):
    """The kernel under a name of its own: different kernels may be called alike."""
    old = re.search(r"void (\w+)\(", body)[1]
    return re.sub(rf"\b{old}(_info)?\b", rf"{name}\1", body)


def main(file, steps=5):
    if Device[Device.DEFAULT].target.renderer != "CLANG":
        sys.exit("kernels in C come from the renderer CLANG: set DEV=CPU:CLANG")
    step, inputs = captured()
    with open(file, "w") as out:
        out.write(as_c(step, inputs, steps))
    for _ in range(steps):
        print(f"{step(*inputs).item():.6f}")


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:])) if len(sys.argv) > 1 else sys.exit(__doc__)
