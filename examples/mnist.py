"""Trains a small convnet on real images: python examples/mnist.py FOLDER

FOLDER comes from examples/fetch_data.py. STEPS=5 BS=8 does five small steps and prints the losses.
"""

import gzip
import sys
from pathlib import Path
from time import time

import numpy as np
from PIL import Image, ImageDraw

from tinycore import Device, Tensor, TinyJit, getenv, nn
from tinycore.helpers import trange

BS, EPOCHS, STEPS = getenv("BS", 128), getenv("EPOCHS", 8), getenv("STEPS", 0)
FASHION = "T-shirt,Trouser,Pullover,Dress,Coat,Sandal,Shirt,Sneaker,Bag,Boot"


def load(folder, part):
    for name in (f"{part}-images-idx3-ubyte.gz", f"{part}-labels-idx1-ubyte.gz"):
        data = gzip.decompress((folder / name).read_bytes())
        shape = np.frombuffer(data, ">u4", count=data[3], offset=4).tolist()
        yield Tensor(np.frombuffer(data, np.uint8, offset=4 + 4 * len(shape)).reshape(shape))


class Net:
    def __init__(self):
        self.conv1 = nn.Conv2d(1, 24, 5, stride=2)
        self.conv2 = nn.Conv2d(24, 48, 3)
        self.out = nn.Linear(48 * 4 * 4, 10)

    def __call__(self, images):
        x = (images.unsqueeze(1).float() - 73) / 90  # about mean 0, deviation 1
        x = self.conv1(x).relu().max_pool2d()
        return self.out(self.conv2(x).relu().flatten(1))


def main(folder):
    (X, Y), (X_test, Y_test) = load(folder, "train"), load(folder, "t10k")
    if len(X) < 10000:  # few images: learn from each one moved by a pixel, too
        X = X.cat(*(X.roll(by, axis) for by in (1, -1) for axis in (1, 2))).realize()
        Y = Y.repeat(5).realize()
    Tensor.manual_seed(0)
    net = Net()
    optimizer = nn.optim.Adam(nn.state.get_parameters(net), lr=0.004)
    predict = TinyJit(lambda images: net(images).argmax(1).realize())

    @TinyJit
    @Tensor.train()
    def step(chosen):
        optimizer.zero_grad()
        loss = net(X[chosen]).sparse_categorical_crossentropy(Y[chosen]).backward()
        return loss.realize(*optimizer.schedule_step())

    random, start = np.random.default_rng(0), time()
    for epoch in range(1, EPOCHS + 1):
        order, losses = random.permutation(len(X)).astype(np.int32), []
        for i in trange(STEPS or len(X) // BS, desc=f"epoch {epoch}"):
            losses.append(step(Tensor(order[i * BS : i * BS + BS]).realize()).item())
        if STEPS:
            return print(*(f"step {i} loss {loss!r}" for i, loss in enumerate(losses)), sep="\n")
        labels = [predict(part.contiguous().realize()).numpy() for part in X_test.split(1000)]
        score = f"test accuracy {(np.concatenate(labels) == Y_test.numpy()).mean():.2%}"
        print(f"epoch {epoch}: loss {np.mean(losses):.4f}, {score}, {time() - start:.0f} s")
        optimizer.lr.assign(optimizer.lr * 0.65).realize()
    names = FASHION.split(",") if "fashion" in folder.name else "0123456789"
    picture = Image.new("L", (10 * 60, 76))
    for i, image in enumerate(X_test[:10].numpy()):
        picture.paste(Image.fromarray(image).resize((56, 56)), (60 * i + 2, 2))
        ImageDraw.Draw(picture).text((60 * i + 4, 60), names[labels[0][i]], fill=255)
    picture.save("mnist.png")
    nn.state.safe_save(nn.state.get_state_dict(net), "mnist.safetensors")
    print(f"{Device.DEFAULT}: {score}; wrote mnist.safetensors and mnist.png")


if __name__ == "__main__":
    main(Path(sys.argv[1])) if len(sys.argv) == 2 else sys.exit(__doc__)
