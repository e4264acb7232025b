"""One pass over the metadata, each distribution read once, nothing imported."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

COUNT = """
import json, sys
from collections import Counter
import importlib_metadata
reads, passes = Counter(), 0
read_text = importlib_metadata.PathDistribution.read_text
def counted(self, name):
    reads[f"{self._path.name}/{name}"] += 1
    return read_text(self, name)
importlib_metadata.PathDistribution.read_text = counted
all_distributions = importlib_metadata.distributions
def counting(**kwargs):
    global passes
    passes += not kwargs
    return all_distributions(**kwargs)
importlib_metadata.distributions = counting

from tinycore.device.registry import Device
Device["CPU"].renderer
first = dict(reads)
for name in ("GOOD", "CPU:1"): Device[name]
try: Device["NOSUCH"]
except Exception: pass
Device.get_available_devices()
print(json.dumps([first, dict(reads), passes]))
"""


def test_each_distribution_is_read_once(clean: Any) -> None:
    first, after, passes = clean.json(COUNT)
    assert passes == 1
    assert after == first  # later lookups read nothing
    entry_points = {name: n for name, n in first.items() if name.endswith("/entry_points.txt")}
    assert set(entry_points.values()) == {1}
    assert len(entry_points) >= 6  # the three plugins and the dependencies
    others = {name.split("/")[0] for name in first if name not in entry_points}
    of_plugins = {"tinycore_cpu-0.1.0.dist-info", "acme_good-1.0.dist-info",
                  "acme_ways-1.0.dist-info"}  # fmt: skip
    assert others - {"tinycore.egg-info"} == of_plugins  # the tree's own, for its version


def test_scanning_imports_no_plugin(zoo: Any) -> None:
    found = zoo.json(
        """
        import json, sys
        from tinycore.plugin.scan import scan
        names = {p.value.partition(":")[0] for p in (*scan().providers, *scan().other_majors)}
        print(json.dumps(sorted(n for n in names if n in sys.modules)))
        """
    )
    assert found == ["tinycore.plugin"]


SCAN = """
import json
from tinycore.plugin.scan import scan
s = scan()
print(json.dumps({
    "providers": [[p.full_name, p.distribution.name, p.distribution.version]
                  for p in s.providers if p.distribution.name != "tinycore"],
    "problems": [[p.status, p.distribution.name, p.reason] for p in s.problems],
}))
"""


def test_a_path_seen_twice_is_one_distribution(clean: Any, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(clean.site)
    assert clean.json(SCAN, path=[link]) == clean.json(SCAN)


def test_a_stale_copy_without_entry_points_hides_the_plugin(clean: Any, tmp_path: Path) -> None:
    stale = tmp_path / "acme_good.egg-info"
    stale.mkdir()
    (stale / "PKG-INFO").write_text("Metadata-Version: 2.1\nName: acme-good\nVersion: 0.9\n")
    found = clean.json(SCAN, path=[tmp_path])
    assert not [p for p in found["providers"] if p[1] == "acme-good"]
    hidden = clean.site / "acme_good-1.0.dist-info"
    assert found["problems"] == [["shadowed", "acme-good", f"{stale} hides {hidden}"]]


def test_a_copy_later_on_the_path_is_reported_as_shadowed(clean: Any, tmp_path: Path) -> None:
    copy = tmp_path / "acme_good-1.0.dist-info"
    shutil.copytree(clean.site / copy.name, copy)
    found = clean.json(SCAN, path=[tmp_path])
    assert [p for p in found["providers"] if p[0] == "device.GOOD"] == [
        ["device.GOOD", "acme-good", "1.0"]
    ]
    hidden = clean.site / copy.name
    assert found["problems"] == [["shadowed", "acme-good", f"{copy} hides {hidden}"]]


def test_entry_points_that_route_nowhere_are_reported(clean: Any, tmp_path: Path) -> None:
    info = tmp_path / "odd-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: odd\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[console_scripts]\nodd = odd:main\n\n"
        "[tinycore.plugins.v1]\n# a comment\ndevice.GOOD.TWO = odd:plugin\ndevice.ODD = odd\n"
        "device.NULL = odd:plugin\ndevice.FINE = odd:plugin\ndevice.fine = odd:plugin\n"
        "app.odd = odd:app\n"
    )
    found = clean.json(SCAN, path=[tmp_path])
    assert [p for p in found["providers"] if p[1] == "odd"] == [["device.FINE", "odd", "1.0"]]
    assert [(status, reason) for status, _, reason in found["problems"]] == [
        ("invalid", "entry point 'device.GOOD.TWO' is none of device.X, iface.X.Y, renderer.X.Y"),
        ("invalid", "entry point device.ODD must be 'package.module:attribute', got 'odd'"),
        ("conflict", "device.NULL is provided by tinycore itself and cannot be replaced"),
        ("invalid", "entry point device.fine is there twice"),
    ]
