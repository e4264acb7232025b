"""`python -m tinycore process_replay [FOLDER]`: recorded kernels are compiled again and compared.

Record with CAPTURE_PROCESS_REPLAY=1 in one checkout, run this in another. The exit status is 1
where a kernel differs.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from tinycore.target import Target


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", metavar="FOLDER", nargs="?", help="default: beside the cache")
    parser.add_argument("--json", action="store_true", help="print the differences as JSON")


def run(arguments: argparse.Namespace) -> int:
    from tinycore import plugin
    from tinycore.engine.process_replay import default_folder, difference, records
    from tinycore.progress import tqdm

    folder = Path(arguments.folder) if arguments.folder else default_folder()
    found = list(records(folder))
    renderers: dict[str, object] = {}
    differences: dict[str, str] = {}
    for path, was in tqdm(found, desc="kernels"):
        renderer = renderers.get(was.target)
        if renderer is None:
            renderer = renderers[was.target] = plugin.select_renderer(Target.parse(was.target))
        text = difference(was, renderer)
        if text is not None:
            differences[path.name] = text
    if arguments.json:
        json.dump({"kernels": len(found), "differences": differences}, sys.stdout)
        sys.stdout.write("\n")
    else:
        sys.stdout.writelines(differences.values())
        sys.stdout.write(f"{len(found)} kernels, {len(differences)} differ\n")
    return 1 if differences else 0
