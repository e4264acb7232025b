"""Says what a photo shows: python examples/efficientnet.py FOLDER PHOTO ...

FOLDER comes from `python examples/fetch_models.py efficientnet`: EfficientNet-lite0, which tells
1,000 classes of ImageNet apart. Two photos come from `python examples/fetch_models.py photos`. The
classes are printed by number, the likeliest first, with their probabilities.
"""

import sys
from pathlib import Path

import numpy as np
from PIL import Image

from tinycore import Tensor, nn

SIZE = 224
BLOCKS = [  # layers, kernel, stride of the first, times as many channels inside, channels
    (1, 3, 1, 1, 16),
    (2, 3, 2, 6, 24),
    (2, 5, 2, 6, 40),
    (3, 3, 2, 6, 80),
    (3, 5, 1, 6, 112),
    (4, 5, 2, 6, 192),
    (1, 3, 1, 6, 320),
]


class SameConv(nn.Conv2d):
    """Pads so that n becomes n / stride, with the odd pixel at the end, as TensorFlow does."""

    def __init__(self, channels, out, kernel, stride=1, groups=1):
        super().__init__(channels, out, kernel, stride, groups=groups, bias=False)

    def __call__(self, x):
        pads = []
        for n, kernel in zip(x.shape[:1:-1], self.kernel_size[::-1], strict=True):
            lost = max((-(-n // self.stride) - 1) * self.stride + kernel - n, 0)
            pads += [lost // 2, lost - lost // 2]
        return super().__call__(x.pad(pads))


def norm(channels):
    return nn.BatchNorm(channels, eps=1e-3)


class Block:
    """Widens, mixes each channel's neighbours, narrows. Attributes are named as in the file."""

    def __init__(self, channels, out, kernel, stride, times):
        wide = channels * times
        if times > 1:
            self._expand_conv, self._bn0 = SameConv(channels, wide, 1), norm(wide)
        self._depthwise_conv = SameConv(wide, wide, kernel, stride, groups=wide)
        self._bn1, self._bn2 = norm(wide), norm(out)
        self._project_conv = SameConv(wide, out, 1)

    def __call__(self, x):
        y = self._bn0(self._expand_conv(x)).relu6() if hasattr(self, "_bn0") else x
        y = self._bn1(self._depthwise_conv(y)).relu6()
        y = self._bn2(self._project_conv(y))
        return x + y if y.shape == x.shape else y


class Net:
    def __init__(self, folder):
        self._conv_stem, self._bn0 = SameConv(3, 32, 3, 2), norm(32)
        self._blocks, channels = [], 32
        for layers, kernel, stride, times, out in BLOCKS:
            for k in range(layers):
                self._blocks.append(Block(channels, out, kernel, 1 if k else stride, times))
                channels = out
        self._conv_head, self._bn1 = SameConv(channels, 1280, 1), norm(1280)
        self._fc = nn.Linear(1280, 1000)
        weights = nn.state.torch_load(folder / "efficientnet-lite0-57934424.pth")
        nn.state.load_state_dict(self, weights)

    def __call__(self, images):
        """A number for each of 1,000 classes, of images (n, 3, 224, 224) between -1 and 1."""
        x = self._bn0(self._conv_stem(images)).relu6()
        x = self._bn1(self._conv_head(x.sequential(self._blocks))).relu6()
        return self._fc(x.mean((2, 3)))


def prepared(photo):
    """The middle of the photo as a square of 224 pixels, each the one nearest to it."""
    pixels = np.asarray(Image.open(photo).convert("RGB"))
    side = min(pixels.shape[:2])
    top, left = (pixels.shape[0] - side) // 2, (pixels.shape[1] - side) // 2
    nearest = np.arange(SIZE) * side // SIZE
    square = pixels[top : top + side, left : left + side][nearest][:, nearest]
    return (Tensor(square.transpose(2, 0, 1)).unsqueeze(0).float() - 127) / 128


def main(folder, photos):
    net = Net(folder)
    for photo in photos:
        chances, classes = net(prepared(photo)).softmax().topk(5)
        found = zip(classes[0].tolist(), chances[0].tolist(), strict=True)
        print(photo, *(f"{number}: {chance:.1%}" for number, chance in found), sep="  ")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:]) if len(sys.argv) > 2 else sys.exit(__doc__)
