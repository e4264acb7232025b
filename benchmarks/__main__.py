"""tinycore beside numpy, torch and tinygrad, in one interleaved run: python benchmarks [OPTIONS]

Every library runs in processes of its own. Results are compared with numpy's before anything is
timed; a library that computes something else, or fails, ends the run with its message. Bursts of
the libraries alternate, so that what else the machine does falls on all, and a ratio is the
median of the rounds' ratios.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

from report import as_json, missed, print_table
from rows import GROUPS, Row, WrongResult
from session import Session, WorkerError

LIBRARIES = ("tinycore", "tinygrad", "torch", "numpy")
NO_CLANG = (
    "tinygrad is left out: it needs a clang on PATH to run on a CPU (on Debian: apt-get install "
    "clang), or CC=PATH."
)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="benchmarks", description=(__doc__ or "").partition(":")[0]
    )
    parser.add_argument(
        "--only", nargs="+", choices=GROUPS, metavar="GROUP", help=", ".join(GROUPS)
    )
    parser.add_argument("--libraries", nargs="+", choices=LIBRARIES, default=list(LIBRARIES))
    parser.add_argument("--rounds", type=int, default=7, help="figures per library (default 7)")
    parser.add_argument(
        "--threads", type=int, default=os.cpu_count() or 1, help="default: all cores"
    )
    parser.add_argument("--dev", default="CPU", help="DEV for tinycore (default CPU)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write every figure there")
    parser.add_argument(
        "--check", action="store_true", help="exit 1 where a ratio is above its limit"
    )
    return parser.parse_args()


def main() -> int:
    options = parse()
    libraries = list(options.libraries)
    rows: list[Row] = []
    versions: dict[str, Any] = {}
    with Session(options.dev, options.threads) as session:
        if "tinygrad" in libraries and session.clang is None:
            print(NO_CLANG, file=sys.stderr)
            libraries.remove("tinygrad")
        try:
            for name in options.only or GROUPS:
                print(f"measuring: {name}", file=sys.stderr)
                rows += GROUPS[name](session, libraries, options.rounds)
            for library in libraries:
                worker = session.worker(library)
                versions[library] = worker.call("measure", function="versions")
        except (WorkerError, WrongResult) as error:
            print(f"benchmarks stopped: {error}", file=sys.stderr)
            return 1
        if session.clang and "tinygrad" in libraries:
            versions["tinygrad"]["compiler"] = Path(session.clang).name
    print_table(rows)
    print("versions:", json.dumps(versions))
    if options.json:
        options.json.write_text(json.dumps(as_json(rows, versions), indent=1) + "\n")
    for line in (wrong := missed(rows)):
        print(line)
    return 1 if options.check and wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
