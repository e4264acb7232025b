"""Compares sentences by what they mean: python examples/minilm.py FOLDER SENTENCE SENTENCE ...

FOLDER comes from `python examples/fetch_models.py minilm`: the sentence encoder all-MiniLM-L6-v2, a
BERT with 6 layers. Each sentence becomes a vector of length 1; the table shows their cosines.
"""

import math
import sys
import unicodedata
from pathlib import Path

from tinycore import Tensor, dtypes, nn

WIDTH, HEADS, LAYERS, WORDS, PLACES = 384, 12, 6, 30522, 512


class Tokenizer:
    """Words into the pieces that the vocabulary has, the longest first."""

    def __init__(self, vocabulary):
        self.number = {piece: k for k, piece in enumerate(vocabulary)}

    def __call__(self, text):
        pieces = ["[CLS]"]
        for word in self.words(text):
            pieces += self.pieces(word)
        return [self.number[piece] for piece in [*pieces[: PLACES - 1], "[SEP]"]]

    def words(self, text):
        """Lower case, without accents; signs and Chinese characters are words of their own."""
        out = []
        for c in unicodedata.normalize("NFD", text.lower()):
            kind = unicodedata.category(c)
            if kind == "Mn" or (kind.startswith("C") and c not in "\t\n\r"):
                continue
            alone = kind.startswith("P") or (c.isascii() and c.isprintable() and not c.isalnum())
            alone = alone or 0x4E00 <= ord(c) <= 0x9FFF or 0x3400 <= ord(c) <= 0x4DBF
            out.append(f" {c} " if alone else c)
        return "".join(out).split()

    def pieces(self, word):
        found, start = [], 0
        while start < len(word):
            for stop in range(len(word), start, -1):
                piece = ("##" if start else "") + word[start:stop]
                if piece in self.number:
                    break
            else:
                return ["[UNK]"]
            found.append(piece)
            start = stop
        return found


def norm():
    return nn.LayerNorm(WIDTH, eps=1e-12)


class Layer:
    """The dictionaries give the weights the names that they have in the file."""

    def __init__(self):
        parts = {name: nn.Linear(WIDTH, WIDTH) for name in ("query", "key", "value")}
        result = {"dense": nn.Linear(WIDTH, WIDTH), "LayerNorm": norm()}
        self.attention = {"self": parts, "output": result}
        self.intermediate = {"dense": nn.Linear(WIDTH, 4 * WIDTH)}
        self.output = {"dense": nn.Linear(4 * WIDTH, WIDTH), "LayerNorm": norm()}

    def __call__(self, x, mask):
        def heads(name):
            y = self.attention["self"][name](x)
            return y.reshape(*x.shape[:2], HEADS, WIDTH // HEADS).transpose(1, 2)

        y = heads("query").scaled_dot_product_attention(heads("key"), heads("value"), mask)
        y = y.transpose(1, 2).reshape(x.shape)
        after = self.attention["output"]
        x = after["LayerNorm"](after["dense"](y) + x)
        y = self.intermediate["dense"](x)
        y = 0.5 * y * (1 + (y / math.sqrt(2)).erf())
        return self.output["LayerNorm"](self.output["dense"](y) + x)


class Encoder:
    def __init__(self, folder):
        self.embeddings = {
            "word_embeddings": nn.Embedding(WORDS, WIDTH),
            "position_embeddings": nn.Embedding(PLACES, WIDTH),
            "token_type_embeddings": nn.Embedding(2, WIDTH),
            "LayerNorm": norm(),
        }
        self.encoder = {"layer": [Layer() for _ in range(LAYERS)]}
        nn.state.load_state_dict(self, nn.state.safe_load(folder / "model.safetensors"))
        words = (folder / "vocab.txt").read_text(encoding="utf-8").split("\n")
        self.tokenizer = Tokenizer(words[:WORDS])

    def __call__(self, sentences):
        """A vector of length 1 for each sentence."""
        ids = [self.tokenizer(sentence) for sentence in sentences]
        longest = max(len(row) for row in ids)
        tokens = Tensor([row + [0] * (longest - len(row)) for row in ids], dtype=dtypes.int32)
        there = Tensor([[k < len(row) for k in range(longest)] for row in ids])
        part = self.embeddings
        x = part["word_embeddings"](tokens) + part["token_type_embeddings"](tokens * 0)
        x = part["LayerNorm"](x + part["position_embeddings"](Tensor.arange(longest).unsqueeze(0)))
        for layer in self.encoder["layer"]:
            x = layer(x, there.reshape(len(ids), 1, 1, longest))
        weight = there.unsqueeze(-1).float()
        mean = (x * weight).sum(1) / weight.sum(1)
        return mean / mean.square().sum(-1, keepdim=True).sqrt()


def main(folder, sentences):
    vectors = Encoder(folder)(sentences).realize()
    for sentence, row in zip(sentences, (vectors @ vectors.T).tolist(), strict=True):
        print(*(f"{x:6.3f}" for x in row), f"  {sentence}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:]) if len(sys.argv) > 2 else sys.exit(__doc__)
