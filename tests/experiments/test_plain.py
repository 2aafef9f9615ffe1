"""What a file or an override may hold: anything else is one line, at once."""

from time import monotonic

import pytest

from laggard import ConfigError, load
from laggard.experiments.config.document import MAX_TEXT, parse_yaml

LAUGHS = "".join(f"- &a{n} [{', '.join([f'*a{n - 1}' if n else 'ha'] * 10)}]\n" for n in range(9))
MERGES = "- &a0 {k: 1}\n" + "".join(
    f"- &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 10)}]}}\n" for n in range(1, 9)
)
BAD = {
    "deep lists": ("question: " + "[" * 500 + "]" * 500, "expected at most 100 levels"),
    "open lists": ("question: " + "[" * 5000, "expected at most 100 levels"),
    "deep mappings": ("".join(" " * n + "a:\n" for n in range(300)), "expected at most 100 levels"),
    "deeper than an override may go": (
        "name: " + "[1, " * 101 + "]" * 101,
        "expected at most 100 levels",
    ),
    "a billion laughs": (LAUGHS, "expected at most 100,000 values"),
    "a billion merges": (MERGES, "expected at most 100,000 values"),
    "a huge integer": (
        "cluster: {workers: 1" + "0" * 400 + "}",
        "expected a whole number of at most 64 bits",
    ),
    "a larger one": ("cluster: {workers: 1" + "0" * 5000 + "}", "expected a"),
    "a large file": ("question: " + "a" * MAX_TEXT, "expected at most 100,000 characters"),
}


@pytest.mark.parametrize("text", BAD)
def test_unusual_yaml_is_refused_quickly(toy, text):
    start = monotonic()
    with pytest.raises(ConfigError) as caught:
        load(toy(text=BAD[text][0]))
    assert BAD[text][1] in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1
    assert monotonic() - start < 5.0


def test_plain_yaml_is_read_unchanged():
    text = 'a: [1, 1e-3, .inf, null, true, "x\\ny", 0x1F, &b {c: d}, *b]\nsizes: {<<: *b, e: f}'
    same = {"c": "d"}
    values = [1, 1e-3, float("inf"), None, True, "x\ny", 31, same, same]
    assert parse_yaml(text, "here") == {"a": values, "sizes": {"c": "d", "e": "f"}}


def test_invalid_path_gives_one_line_error(tmp_path):
    with pytest.raises(ConfigError, match="cannot be read"):
        load(f"{tmp_path}/a\0b")


@pytest.mark.parametrize(
    ("overrides", "key"),
    [
        (["sweep=5", "sweep.seed=[1]"], "sweep"),
        ([".".join("a" * 3000) + "=3"], ".".join("a" * 3000)),
        (
            ["cluster.slowdowns=[{worker: 0, factor: 2}]", f"cluster.slowdowns.{'9' * 5000}=3"],
            f"cluster.slowdowns.{'9' * 5000}",
        ),
        (["cluster.workers=1" + "0" * 5000], "line 1, column 1"),
        (["question=" + "a" * MAX_TEXT * 2], ""),
        ([f"sweep={{{', '.join(f'learning.a{n}: [1, 2, 3]' for n in range(40))}}}"], "sweep"),
    ],
)
def test_huge_override_is_refused_quickly(toy, overrides, key):
    start = monotonic()
    with pytest.raises(ConfigError) as caught:
        load(toy(), *overrides)
    assert caught.value.key == key
    assert len(str(caught.value).splitlines()) == 1
    assert len(str(caught.value)) < 1000
    assert monotonic() - start < 5.0


def test_grid_may_have_its_own_limit(toy):
    assert load(toy(), "sweep={most: 3, seed: [1, 2, 3]}").sweep["most"] == 3


def test_changed_value_does_not_come_back():
    parse_yaml("{a: [1]}", "")["a"].append(2)
    assert parse_yaml("{a: [1]}", "") == {"a": [1]}
