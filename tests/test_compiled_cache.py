"""The cache of what numba compiles: damaged or edited files are compiled again."""

import pytest

from laggard import compiled_cache
from laggard.compiled_cache import compile_cached
from laggard.simulator.network import nested


@pytest.fixture(autouse=True)
def _own_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def flip(content):
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]


DAMAGES = {
    "cut short": lambda content: content[: len(content) // 2],
    "flipped": flip,
    "empty": lambda _: b"",
}


@pytest.mark.parametrize("suffix", [".nbc", ".nbi", ".py", ".sha256"])
@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_cache_is_compiled_again(damage, suffix, tmp_path):
    stored = []

    def compile_entries(module):
        """Store what numba would, unless it is there; count what was loaded."""
        path = compiled_cache.source_path("x = 1")
        for name in (f"{path.stem}.predict-1.py311.nbi", f"{path.stem}.predict-1.py311.1.nbc"):
            file = path.parent / "__pycache__" / name
            file.parent.mkdir(exist_ok=True)
            stored.append(file.is_file() and file.read_bytes() == b"as it was compiled")
            file.write_bytes(b"as it was compiled")

    for _ in range(2):
        compile_cached("x = 1", compile_entries)
    assert stored == [False, False, True, True]
    (file,) = [file for file in tmp_path.rglob(f"*{suffix}") if file.is_file()]
    file.write_bytes(DAMAGES[damage](file.read_bytes()))
    for _ in range(2):
        compile_cached("x = 1", compile_entries)
    assert stored[4:] == [False, False, True, True]


SOURCE = """
from numba import njit

@njit(cache=CACHED)
def scale(x):
    return 2 * x
"""


def test_edited_cache_gives_no_other_numbers(tmp_path, monkeypatch):
    """What numba stored for an edited source takes the place of the source's own."""
    monkeypatch.setattr(compiled_cache, "source_path", lambda _: tmp_path / "laggard_scale.py")

    def scale_one(text):
        def compile_entries(module):
            module.scale.compile("(f8,)")
            return module.scale(1.0)

        return compile_cached(text, compile_entries)

    assert scale_one(SOURCE.replace("2", "3")) == 3
    edited = {file: file.read_bytes() for file in (tmp_path / "__pycache__").iterdir()}
    for seal in tmp_path.glob("*.sha256"):
        seal.unlink()
    assert scale_one(SOURCE) == 2
    for file, content in edited.items():
        file.write_bytes(content)
    assert scale_one(SOURCE) == 2


def test_filling_is_compiled_in_sealed_cache(monkeypatch):
    sources = []
    monkeypatch.setattr(
        nested, "compile_cached", lambda text, compile_entries: sources.append(text)
    )
    nested.compile_filling.cache_clear()
    nested.compile_filling()
    nested.compile_filling.cache_clear()
    for name in nested.FILLING_ENTRIES:
        assert f"@entry\ndef {name}(" in sources[0]
    assert "cache=CACHED" in sources[0]
