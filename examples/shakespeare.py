"""Trains a small transformer to write Shakespeare: python examples/shakespeare.py TEXT

TEXT comes from examples/fetch_shakespeare.py. Its last tenth is held back; losses are in nats a
letter, and to beat is 2.0389, by counts of which letter follows which two. STEPS=5 does five steps
and prints their losses.
"""

import sys
from pathlib import Path
from time import time

import numpy as np

from tinycore import Device, Tensor, TinyJit, getenv, nn
from tinycore.helpers import trange

STEPS, BS, LENGTH = getenv("STEPS", 0), getenv("BS", 32), 64
WIDTH, DEPTH, HEADS = getenv("WIDTH", 96), 3, 4
EPOCHS, EPOCH, TRIGRAM = 6, 200, 2.0389


class Block:
    def __init__(self):
        self.norm1, self.norm2 = nn.RMSNorm(WIDTH), nn.RMSNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def __call__(self, x):
        n, t, _ = x.shape
        parts = self.qkv(self.norm1(x)).reshape(n, t, 3, HEADS, WIDTH // HEADS)
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        seen = q.scaled_dot_product_attention(k, v, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(n, t, WIDTH))
        return x + self.down(self.up(self.norm2(x)).gelu())


class Transformer:
    def __init__(self, letters):
        self.letter, self.place = nn.Embedding(letters, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = [Block() for _ in range(DEPTH)]
        self.norm, self.head = nn.RMSNorm(WIDTH), nn.Linear(WIDTH, letters)

    def __call__(self, text):
        x = self.letter(text) + self.place(Tensor.arange(text.shape[1]))
        return self.head(self.norm(x.sequential(self.blocks)))

    def loss(self, windows):
        return self(windows[:, :-1]).sparse_categorical_crossentropy(windows[:, 1:])


def main(file):
    letters, codes = np.unique(np.frombuffer(file.read_bytes(), np.uint8), return_inverse=True)
    cut = len(codes) * 9 // 10
    text, held = Tensor(codes[:cut].astype(np.int32)).realize(), codes[cut:].astype(np.int32)
    held = np.lib.stride_tricks.sliding_window_view(held, LENGTH + 1)[::LENGTH]
    Tensor.manual_seed(0)
    net = Transformer(len(letters))
    matrices = [p for p in nn.state.get_parameters(net.blocks) if p.ndim == 2]
    others = [p for p in nn.state.get_parameters(net) if not any(p is m for m in matrices)]
    muon, adam = nn.optim.Muon(matrices, lr=0.02), nn.optim.AdamW(others, lr=0.005)
    optimizer = nn.optim.OptimizerGroup(muon, adam)

    @TinyJit
    @Tensor.train()
    def step():
        start = Tensor.randint(BS, 1, high=cut - LENGTH)
        optimizer.zero_grad()
        loss = net.loss(text[start + Tensor.arange(LENGTH + 1)]).backward()
        return loss.realize(*optimizer.schedule_step())

    @TinyJit
    def predict(seen):
        return (net(seen)[0, -1] / 0.8).softmax().multinomial().realize()

    measure, begin = TinyJit(lambda windows: net.loss(windows).realize()), time()

    def held_loss(parts):  # of 100 windows each
        batches = [Tensor(held[i * 100 : i * 100 + 100]).realize() for i in range(parts)]
        return np.mean([measure(windows).item() for windows in batches])

    if STEPS:
        return print(*(f"step {i} loss {step().item()!r}" for i in range(STEPS)), sep="\n")
    for epoch in range(1, EPOCHS + 1):
        losses = [step().item() for _ in trange(EPOCH, desc=f"part {epoch} of {EPOCHS}")]
        score = f"trained {np.mean(losses):.4f}, held back {held_loss(10):.4f}"
        print(f"{epoch * EPOCH} steps: {score} (first 64,000 letters), {time() - begin:.0f} s")
        for rate in (muon.lr, adam.lr):
            rate.assign(rate * 0.6).realize()
    score, count = held_loss(len(held) // 100), len(held) // 100 * 100 * LENGTH
    seen = held[0, :LENGTH]
    for _ in range(400):
        seen = np.append(seen, predict(Tensor(seen[None, -LENGTH:]).realize()).numpy())
    print("-" * 60, bytes(letters[seen]).decode(), "-" * 60, sep="\n")
    verdict = f"{'below' if score < TRIGRAM else 'NOT below'} {TRIGRAM}"
    print(f"{Device.DEFAULT}: {score:.4f} nats a letter on {count:,} held back, {verdict}")


if __name__ == "__main__":
    main(Path(sys.argv[1])) if len(sys.argv) == 2 else sys.exit(__doc__)
