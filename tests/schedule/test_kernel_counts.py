"""How many kernels common graphs take, counted on NULL. A count may fall; it may not rise."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import pytest

from tinycore import Tensor, dtypes, nn
from tinycore.config import Context
from tinycore.nn.state import get_parameters, get_state_dict

DEVICE = "NULL:CLANG:x86-64-v3"
E = Tensor.empty
M = TypeVar("M")


def count(*tensors: Tensor) -> int:
    return len(tensors[0].schedule_linear(*tensors[1:]).src)


def emptied(model: M) -> M:
    for t in get_state_dict(model).values():
        wanted = t.requires_grad
        t.replace(E(*t.shape, dtype=t.dtype))
        t.requires_grad = wanted
    return model


def conv_bn_relu() -> list[Tensor]:
    conv, norm = emptied(nn.Conv2d(16, 16, 3, padding=1)), emptied(nn.BatchNorm(16))
    return [norm(conv(E(8, 16, 32, 32))).relu()]


def attention(causal: bool) -> list[Tensor]:
    q, k, v = [E(1, 8, 512, 64) for _ in range(3)]
    return [q.scaled_dot_product_attention(k, v, is_causal=causal)]


SMALL: dict[str, tuple[Callable[[], list[Tensor]], int]] = {
    "elementwise": (lambda: [(E(64, 64) * E(64, 64) + E(64, 64)).relu().exp2()], 1),
    "sum of 16M": (lambda: [E(1 << 24).sum()], 1),
    "softmax": (lambda: [E(4096, 4096).softmax()], 1),
    "log_softmax": (lambda: [E(4096, 4096).log_softmax()], 1),
    "layernorm": (lambda: [E(4096, 1024).layernorm()], 1),
    "var_mean": (lambda: list(E(256, 256).var_mean(axis=1)), 2),
    "matmul bias relu": (lambda: [(E(512, 512) @ E(512, 512) + E(512)).relu()], 1),
    "conv bn relu": (conv_bn_relu, 1),
    "attention": (lambda: attention(False), 3),
    "causal attention": (lambda: attention(True), 3),
    "cumsum": (lambda: [E(4096).cumsum()], 3),
    "sort": (lambda: list(E(256).sort()), 5),
    "argmax": (lambda: [E(256, 256).argmax(1)], 1),
    "gather rows": (lambda: [E(1000, 64)[E(128, dtype=dtypes.int)]], 1),
    "rand": (lambda: [Tensor.rand(1024)], 4),
    "randn": (lambda: [Tensor.randn(1024)], 2),
}


@pytest.mark.parametrize("name", SMALL)
def test_small_graphs(name: str) -> None:
    make, limit = SMALL[name]
    with Context(DEV=DEVICE):
        assert count(*make()) <= limit


class Block:
    def __init__(self, dim: int, heads: int) -> None:
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.up, self.down = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)

    def __call__(self, x: Tensor) -> Tensor:
        b, t, c = x.shape
        qkv = self.qkv(self.norm1(x)).reshape(b, t, 3, self.heads, c // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        y = q.scaled_dot_product_attention(k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, c))
        return x + self.down(self.up(self.norm2(x)).gelu())


class GPT2:
    def __init__(self, layers: int, dim: int = 768, heads: int = 12) -> None:
        self.words, self.places = nn.Embedding(50257, dim), nn.Embedding(1024, dim)
        self.blocks = [Block(dim, heads) for _ in range(layers)]
        self.norm = nn.LayerNorm(dim)

    def __call__(self, ids: Tensor) -> Tensor:
        x = self.words(ids) + self.places(Tensor.arange(ids.shape[1]).reshape(1, -1))
        return self.norm(x.sequential(self.blocks)) @ self.words.weight.T


class Bottleneck:
    def __init__(self, inner: int, width: int, stride: int) -> None:
        self.conv1, self.bn1 = nn.Conv2d(inner, width, 1, bias=False), nn.BatchNorm(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm(width)
        self.conv3, self.bn3 = nn.Conv2d(width, width * 4, 1, bias=False), nn.BatchNorm(width * 4)
        self.down: list[Callable[[Tensor], Tensor]] = []
        if stride != 1 or inner != width * 4:
            self.down = [
                nn.Conv2d(inner, width * 4, 1, stride, bias=False),
                nn.BatchNorm(width * 4),
            ]

    def __call__(self, x: Tensor) -> Tensor:
        y = self.bn1(self.conv1(x)).relu()
        y = self.bn2(self.conv2(y)).relu()
        return (self.bn3(self.conv3(y)) + x.sequential(self.down)).relu()


class ResNet50:
    def __init__(self) -> None:
        self.conv, self.bn = nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm(64)
        self.blocks: list[Callable[[Tensor], Tensor]] = []
        inner = 64
        for width, blocks, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
            for k in range(blocks):
                self.blocks.append(Bottleneck(inner, width, stride if k == 0 else 1))
                inner = width * 4
        self.fc = nn.Linear(2048, 1000)

    def __call__(self, x: Tensor) -> Tensor:
        x = self.bn(self.conv(x)).relu().pad((1, 1, 1, 1)).max_pool2d((3, 3), 2)
        return self.fc(x.sequential(self.blocks).mean((2, 3)))


def loss_and_gradients(model: object, out: Tensor) -> list[Tensor]:
    loss = out.sparse_categorical_crossentropy(E(*out.shape[:-1], dtype=dtypes.int))
    loss.backward()
    return [loss, *[p.grad for p in get_parameters(model) if p.grad is not None]]


@pytest.mark.parametrize(("layers", "limit"), [(1, 11), (12, 110)])
def test_gpt2_forward(layers: int, limit: int) -> None:
    with Context(DEV=DEVICE):
        assert count(emptied(GPT2(layers))(E(1, 128, dtype=dtypes.int))) <= limit


def test_gpt2_forward_and_backward() -> None:
    with Context(DEV=DEVICE):
        model = emptied(GPT2(12))
        for p in get_parameters(model):
            p.requires_grad = True
        tensors = loss_and_gradients(model, model(E(1, 128, dtype=dtypes.int)))
        linear = tensors[0].schedule_linear(*tensors[1:])
    assert len(linear.src) <= 437
    assert len({c.src[0] for c in linear.src}) <= 45


@pytest.mark.parametrize(("backward", "limit"), [(False, 109), (True, 464)])
def test_resnet50_with_batch_statistics(backward: bool, limit: int) -> None:
    with Context(DEV=DEVICE), Tensor.train():
        model = emptied(ResNet50())
        for p in get_parameters(model):
            p.requires_grad = backward
        out = model(E(2, 3, 224, 224))
        if backward:
            found = count(*loss_and_gradients(model, out))
        else:
            found = count(out.sparse_categorical_crossentropy(E(2, dtype=dtypes.int)))
    assert found <= limit
