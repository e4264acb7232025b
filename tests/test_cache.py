"""The disk cache: damaged entries, unusable folders, many processes, a size limit."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import time
import warnings
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinycore import cache, config
from tinycore.cache import DiskCache
from tinycore.config import Context
from tinycore.errors import ArgumentError, TinycoreWarning


@pytest.fixture
def disk(tmp_path: Path) -> DiskCache:
    return DiskCache(tmp_path / "cache", 1 << 30)


def entries(folder: Path) -> list[Path]:
    return [p for p in folder.rglob("*") if p.is_file() and p.name != ".pruned"]


def test_what_was_put_is_there_for_another_object(disk: DiskCache, tmp_path: Path) -> None:
    assert disk.get("programs", "key") is None
    disk.put("programs", "key", b"value")
    disk.put("programs", b"key2", b"")
    other = DiskCache(tmp_path / "cache", 1 << 30)
    assert other.get("programs", "key") == b"value"
    assert other.get("programs", b"key2") == b""
    assert other.get("schedules", "key") is None
    other.put("programs", "key", b"new")
    assert disk.get("programs", "key") == b"new"


@given(key=st.one_of(st.binary(), st.text()), value=st.binary(max_size=300))
def test_any_key_and_value(
    tmp_path_factory: pytest.TempPathFactory, key: bytes | str, value: bytes
) -> None:
    disk = DiskCache(tmp_path_factory.getbasetemp() / "any", 1 << 30)
    disk.put("t", key, value)
    assert disk.get("t", key) == value


@pytest.mark.skipif(os.name != "posix", reason="modes and owners are POSIX's")
def test_only_the_user_may_look(disk: DiskCache, tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    folder.mkdir(mode=0o755)
    disk.put("t", "k", b"v")
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


@pytest.mark.parametrize("damage", ["flip", "cut", "empty", "header", "other-key"])
def test_a_damaged_entry_is_a_miss_and_goes(disk: DiskCache, tmp_path: Path, damage: str) -> None:
    disk.put("t", "k", b"some value")
    (path,) = entries(tmp_path / "cache")
    held = path.read_bytes()
    if damage == "other-key":
        disk.put("t", "k2", b"some value")
        (other,) = set(entries(tmp_path / "cache")) - {path}
        path.write_bytes(other.read_bytes())
    else:
        damaged = {
            "flip": held[:-1] + bytes([held[-1] ^ 1]),
            "cut": held[:-1],
            "empty": b"",
            "header": b"x" + held[1:],
        }
        path.write_bytes(damaged[damage])
    assert disk.get("t", "k") is None
    assert not path.exists()
    disk.put("t", "k", b"again")
    assert disk.get("t", "k") == b"again"


def unusable(tmp_path: Path, how: str) -> Path:
    if how == "file":
        (tmp_path / "file").write_text("")
        return tmp_path / "file"
    if how == "below-a-file":
        (tmp_path / "file").write_text("")
        return tmp_path / "file" / "cache"
    return Path("/proc/cannot/be/made")


@pytest.mark.parametrize("how", ["file", "below-a-file", "proc"])
def test_an_unusable_folder_gives_one_warning(tmp_path: Path, how: str) -> None:
    disk = DiskCache(unusable(tmp_path, how), 1 << 30)
    with pytest.warns(TinycoreWarning, match="cannot use the cache folder") as caught:
        disk.put("t", "k", b"v")
        assert disk.get("t", "k") is None
        disk.put("t", "k", b"v")
        disk.clear()
    assert len(caught) == 1


def test_a_folder_that_cannot_be_written_is_still_read(disk: DiskCache, tmp_path: Path) -> None:
    disk.put("t", "k", b"v")
    reader = DiskCache(tmp_path / "cache", 1 << 30)
    assert reader.get("t", "k") == b"v"
    (tmp_path / "cache" / "u").write_text("")  # where the table's folder would be
    with pytest.warns(TinycoreWarning, match="cannot write the cache folder") as caught:
        reader.put("u", "k", b"v")
        reader.put("t", "k3", b"v")
    assert len(caught) == 1
    assert reader.get("t", "k") == b"v"


@pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write to any folder"
)
def test_a_read_only_folder(disk: DiskCache, tmp_path: Path) -> None:
    disk.put("t", "k", b"v")
    for folder in (tmp_path / "cache").rglob("*"):
        if folder.is_dir():
            folder.chmod(0o500)
    reader = DiskCache(tmp_path / "cache", 1 << 30)
    with pytest.warns(TinycoreWarning) as caught:
        for at in range(3):
            reader.put("t", f"k{at}", b"v")
    assert len(caught) == 1
    assert reader.get("t", "k") == b"v"


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="needs root to chown")
def test_a_folder_of_another_user_is_not_trusted(disk: DiskCache, tmp_path: Path) -> None:
    disk.put("t", "k", b"v")
    os.chown(tmp_path / "cache", 12345, -1)
    other = DiskCache(tmp_path / "cache", 1 << 30)
    with pytest.warns(TinycoreWarning, match="it belongs to user 12345"):
        assert other.get("t", "k") is None


def test_the_oldest_entries_go_when_it_is_full(tmp_path: Path) -> None:
    disk = DiskCache(tmp_path / "cache", 64 * 4096)
    now = time.time()
    for at in range(60):
        disk.put("t", f"k{at}", bytes(3000))
        path = disk._path("t", f"k{at}".encode())
        os.utime(path, (now - 10000 + at, now - 10000 + at))
    assert disk.get("t", "k0") is not None  # used now, so it is the newest
    for at in range(60, 80):
        disk.put("t", f"k{at}", bytes(3000))
    disk.prune()
    kept = [at for at in range(80) if disk.get("t", f"k{at}") is not None]
    assert len(entries(tmp_path / "cache")) <= 64
    assert 0 in kept
    assert kept[1:] == list(range(80 - len(kept) + 1, 80))


def test_what_a_killed_writer_left_is_removed(disk: DiskCache, tmp_path: Path) -> None:
    disk.put("t", "k", b"v")
    left = tmp_path / "cache" / "t" / ".left.1.ff"
    fresh = tmp_path / "cache" / "t" / ".fresh.1.ff"
    left.write_text("x")
    fresh.write_text("x")
    os.utime(left, (1, 1))
    disk.prune()
    assert not left.exists()
    assert fresh.exists()
    assert disk.get("t", "k") == b"v"


def test_a_failed_write_leaves_nothing_aside(
    disk: DiskCache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        disk.put("t", "k", b"v")
    assert entries(tmp_path / "cache") == []
    monkeypatch.undo()
    disk.put("t", "k", b"v")
    assert disk.get("t", "k") == b"v"


WRITER = """
import sys
from tinycore.cache import DiskCache
disk = DiskCache(sys.argv[1], 40 * 4096)
bad = 0
for round in range(60):
    for k in range(10):
        value = f"{k}:".encode() * (100 + round)
        disk.put("t", f"k{k}", value)
        found = disk.get("t", f"k{k}")
        whole = {str(k).encode(), b""}
        bad += found is not None and set(found.split(b":")) != whole
print(bad)
"""


def test_processes_may_write_at_once(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        running = [
            subprocess.Popen(
                [sys.executable, "-W", "error", "-c", WRITER, str(tmp_path / "cache")],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for _ in range(4)
        ]
        for process in running:
            out, error = process.communicate(timeout=60)
            assert (process.returncode, out.strip(), error) == (0, "0", "")


def test_a_table_name_cannot_leave_the_folder(disk: DiskCache) -> None:
    for table in ("../x", "", "a/b", ".hidden"):
        with pytest.raises(ArgumentError, match="a cache table is named by"):
            disk.put(table, "k", b"v")


def test_clear(disk: DiskCache, tmp_path: Path) -> None:
    disk.put("t", "k", b"v")
    disk.clear()
    assert entries(tmp_path / "cache") == []
    disk.put("t", "k", b"w")
    assert disk.get("t", "k") == b"w"


# *** the user's own cache ***


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(cache, "_default", None)
    monkeypatch.setenv("TINYCORE_CACHE", str(tmp_path / "own"))
    return tmp_path / "own"


def test_any_value_by_any_key(own: Path) -> None:
    value = {"a": [1, (2.5, None)], "b": b"x"}
    assert cache.diskcache_get("mine", {"n": 1, "m": "x"}) is None
    assert cache.diskcache_put("mine", {"n": 1, "m": "x"}, value) is value
    assert cache.diskcache_get("mine", {"m": "x", "n": 1}) == value
    cache.diskcache_put("mine", 3, 4)
    assert cache.diskcache_get("mine", 3) == 4
    assert entries(own)
    cache.diskcache_clear()
    assert cache.diskcache_get("mine", 3) is None


def test_a_function_with_kept_results(own: Path) -> None:
    calls: list[int] = []

    @cache.diskcache
    def double(x: int, by: int = 2) -> int:
        calls.append(x)
        return x * by

    assert [double(3), double(3), double(3, by=3), double(4)] == [6, 6, 9, 8]
    assert calls == [3, 3, 4]
    assert own.exists()


def test_cachelevel_0_turns_it_off(own: Path) -> None:
    with Context(CACHELEVEL=0):
        cache.put("t", "k", b"v")
        assert cache.get("t", "k") is None
    assert not own.exists()


@pytest.mark.parametrize(
    ("environment", "folder"),
    [
        ({"TINYCORE_CACHE": "/a/b", "CACHEDB": "/c"}, "/a/b"),
        ({"CACHEDB": "/c/d"}, "/c/d"),
        ({"XDG_CACHE_HOME": "/x"}, "/x/tinycore"),
        ({"XDG_CACHE_HOME": "relative", "HOME": "/h"}, "/h/.cache/tinycore"),
        ({"HOME": "/h"}, "/h/.cache/tinycore"),
    ],
)
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the folders of Linux")
def test_where_it_lies(
    environment: dict[str, str], folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tinycore.config import cache_directory

    for name in ("TINYCORE_CACHE", "CACHEDB", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert cache_directory() == folder


@pytest.mark.skipif(os.name != "posix", reason="modes and owners are POSIX's")
def test_a_folder_with_other_things_is_left_as_it_is(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    (tmp_path / "thesis.txt").write_text("years of work")
    for _ in range(2):
        disk = DiskCache(tmp_path, 0)  # so small that every entry is pruned
        disk.put("t", "k", b"v")
        disk.clear()
        assert disk.folder == tmp_path / "tinycore"
        disk.put("t", "k", b"v")
        assert stat.S_IMODE(disk.folder.stat().st_mode) == 0o700
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o755
    assert (tmp_path / "thesis.txt").read_text() == "years of work"


def test_a_folder_of_our_own_is_known_again(disk: DiskCache, tmp_path: Path) -> None:
    disk.put("t", "k", b"v")
    again = DiskCache(tmp_path / "cache", 1 << 30)
    assert again.get("t", "k") == b"v"
    assert again.folder == tmp_path / "cache"


def test_a_user_without_a_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("TINYCORE_CACHE", "CACHEDB", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("os.path.expanduser", lambda path: path)  # as for a user not in passwd
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    found = Path(config.cache_directory())
    assert found.parent == tmp_path
    assert found.name.startswith("tinycore-")
