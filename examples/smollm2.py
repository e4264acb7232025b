"""Continues a text with a language model: python examples/smollm2.py FOLDER TEXT [TOKENS]

FOLDER comes from `python examples/fetch_models.py smollm2`: SmolLM2-135M-Instruct as GGUF. The most
likely token is taken each time, 24 times unless TOKENS says otherwise.
"""

import re
import sys
from itertools import pairwise
from pathlib import Path
from time import time

from tinycore import Tensor, TinyJit, dtypes, nn

CONTEXT = 256  # tokens that it can look back on


class Tokenizer:
    """Byte pairs, as GPT-2 has them; a digit stands alone."""

    WORD = re.compile(
        r"\d|'s|'t|'re|'ve|'m|'ll|'d| ?[^\W\d_]+| ?(?:[^\s\w]|_)+|\s+(?=\d)|\s+(?!\S)|\s+"
    )

    def __init__(self, metadata):
        self.pieces = metadata["tokenizer.ggml.tokens"]
        self.number = {piece: k for k, piece in enumerate(self.pieces)}
        pairs = [tuple(pair.split(" ")) for pair in metadata["tokenizer.ggml.merges"]]
        self.rank = {pair: k for k, pair in enumerate(pairs)}
        shown = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
        hidden = [b for b in range(256) if b not in shown]  # stand as letters from 256 on
        self.letter = {b: chr(b) for b in shown} | {b: chr(256 + k) for k, b in enumerate(hidden)}
        self.byte = {letter: b for b, letter in self.letter.items()}

    def encode(self, text):
        out = []
        for word in self.WORD.findall(text):
            parts = [self.letter[b] for b in word.encode()]
            while len(parts) > 1:
                ranks = [self.rank.get(pair, len(self.rank)) for pair in pairwise(parts)]
                k = min(range(len(ranks)), key=ranks.__getitem__)
                if ranks[k] == len(self.rank):
                    break
                parts[k : k + 2] = [parts[k] + parts[k + 1]]
            out += [self.number[part] for part in parts]
        return out

    def decode(self, tokens):
        letters = "".join(self.pieces[token] for token in tokens)
        return bytes(self.byte.get(letter, 0x3F) for letter in letters).decode(errors="replace")


class Block:
    """Attention over what was kept of earlier tokens, then a gated layer. Named as in the file."""

    def __init__(self, size, inside, heads, shared, eps):
        self.heads, self.shared, self.width = heads, shared, size // heads
        self.attn_norm, self.ffn_norm = nn.RMSNorm(size, eps), nn.RMSNorm(size, eps)
        self.attn_q = nn.Linear(size, size, bias=False)
        self.attn_k = nn.Linear(size, shared * self.width, bias=False)
        self.attn_v = nn.Linear(size, shared * self.width, bias=False)
        self.attn_output = nn.Linear(size, size, bias=False)
        self.ffn_gate = nn.Linear(size, inside, bias=False)
        self.ffn_up = nn.Linear(size, inside, bias=False)
        self.ffn_down = nn.Linear(inside, size, bias=False)

    def __call__(self, x, kept, place, turn):
        """One token at `place`; its key and value join `kept` (2, heads, CONTEXT, width)."""
        y = self.attn_norm(x)
        query = turned(self.attn_q(y).reshape(self.heads, 1, self.width), turn)
        key = turned(self.attn_k(y).reshape(self.shared, 1, self.width), turn)
        value = self.attn_v(y).reshape(self.shared, 1, self.width)
        spots = Tensor.arange(CONTEXT)
        kept.assign((spots == place).reshape(1, 1, CONTEXT, 1).where(key.stack(value), kept))
        keys, values = (kept[k].repeat_interleave(self.heads // self.shared, 0) for k in (0, 1))
        y = query.scaled_dot_product_attention(keys, values, spots <= place)
        x = x + self.attn_output(y.reshape(1, -1))
        y = self.ffn_norm(x)
        return x + self.ffn_down(self.ffn_gate(y).silu() * self.ffn_up(y))


def turned(x, turn):
    """Each pair of numbers turned by the angle that belongs to it at this place."""
    even, odd = x.reshape(*x.shape[:-1], -1, 2).split(1, -1)
    cos, sin = turn.cos().unsqueeze(-1), turn.sin().unsqueeze(-1)
    return (even * cos - odd * sin).cat(even * sin + odd * cos, dim=-1).reshape(x.shape)


class Model:
    def __init__(self, folder):
        file = folder / "SmolLM2-135M-Instruct.Q4_1.gguf"
        metadata, weights = nn.state.gguf_load(file)
        self.tokenizer = Tokenizer(metadata)

        def said(key):
            return metadata[f"llama.{key}"]

        size, heads = said("embedding_length"), said("attention.head_count")
        shared, eps = said("attention.head_count_kv"), said("attention.layer_norm_rms_epsilon")
        inside, count = said("feed_forward_length"), said("block_count")
        self.token_embd = nn.Embedding(len(self.tokenizer.pieces), size)
        self.blk = [Block(size, inside, heads, shared, eps) for _ in range(count)]
        self.output_norm = nn.RMSNorm(size, eps)
        nn.state.load_state_dict(self, weights)
        width = size // heads
        steps = Tensor.arange(0, width, 2, dtype=dtypes.float32) / width
        self._speed = (said("rope.freq_base") ** -steps).realize()
        shape = (2, shared, CONTEXT, width)
        self._kept = [Tensor.zeros(*shape).contiguous().realize() for _ in range(count)]
        self.step = TinyJit(self.forward)

    def forward(self, token, place):
        """The numbers that say how likely each token comes next, after `token` at `place`."""
        x, turn = self.token_embd(token), place * self._speed
        for block, kept in zip(self.blk, self._kept, strict=True):
            x = block(x, kept, place, turn)
        return (self.output_norm(x) @ self.token_embd.weight.T)[0].realize(*self._kept)

    def after(self, tokens, place=0):
        """`forward` of the last of `tokens`, the first of which stands at `place`."""
        for k, token in enumerate(tokens):
            logits = self.step(Tensor([token]).realize(), Tensor([place + k]).realize())
        return logits

    def continued(self, tokens, count):
        """`count` tokens, one by one: each time the most likely one."""
        logits = self.after(tokens)
        for place in range(len(tokens), len(tokens) + count):
            token = logits.argmax().item()
            yield token
            logits = self.after([token], place)


def main(folder, text, count):
    model, start = Model(folder), time()
    print(text, end="", flush=True)
    for token in model.continued(model.tokenizer.encode(text), count):
        print(model.tokenizer.decode([token]), end="", flush=True)
    print(f"\n{count / (time() - start):.1f} tokens/s", file=sys.stderr)


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]) if len(sys.argv) == 4 else 24)
