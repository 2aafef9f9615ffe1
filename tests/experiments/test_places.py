"""Keys at a wrong level: the line says where they belong."""

import pytest

from laggard import ConfigError
from laggard.experiments.config.config import Config, parse
from laggard.experiments.config.document import put
from laggard.experiments.config.listing import describe_entries
from laggard.experiments.config.places import places

PLACES = {place for group in places(Config).values() for place in group}
GROUPS = {place.rpartition(".")[0] for place in PLACES}
LISTS = (
    "cluster.slowdowns",
    "cluster.server_crashes",
    "cluster.network.cards",
    "cluster.network.links",
    "cluster.network.groups.trunks",
)


def moved(place):
    """The places one level up and down at which no key of this name is known."""
    group, _, key = place.rpartition(".")
    if group:
        yield ".".join([*group.split(".")[:-1], key])
    for other in sorted(GROUPS - {group}):
        if other.rpartition(".")[0] == group:
            yield f"{other}.{key}"


def refusal(place):
    """The problems of a config with a key at a dotted place."""
    document = {}
    words = place.split(".")
    for depth in range(1, len(words)):
        group = ".".join(words[:depth])
        document = put(document, group, {})
    document = put(document, place, 1)
    for group in LISTS:
        if place.startswith(f"{group}."):
            inner = document
            for word in group.split(".")[:-1]:
                inner = inner[word]
            last = group.rpartition(".")[2]
            inner[last] = [inner[last]]
    with pytest.raises(ConfigError) as caught:
        parse(document)
    return [caught.value, *caught.value.others]


OF_ONE_METHOD = ("algorithm.cgad.", "algorithm.heloco.")
"""Groups of keys that the default method does not have, so that they are what is unknown."""
CASES = [
    (place, wrong)
    for place in sorted(PLACES)
    for wrong in moved(place)
    if wrong not in PLACES
    and not place.endswith("_sha256")
    and not wrong.startswith(("sweep", *OF_ONE_METHOD))
]


@pytest.mark.parametrize("first", range(0, len(CASES), 50))
def test_misplaced_key_gets_its_place(first):
    for place, wrong in CASES[first : first + 50]:
        problems = [str(error) for error in refusal(wrong)]
        assert any(place in problem for problem in problems), (place, wrong, problems)


def test_all_keys_are_moved():
    assert len({place for place, _ in CASES}) > 200


@pytest.mark.parametrize(
    ("document", "told"),
    [
        ({"cluster": {"network": {"preset": "10gbe"}}}, "here; write cluster.preset"),
        ({"learning_rate": 0.1}, r"here; did you mean learning\? Or write learning.lr"),
        ({"evaluate": {"updates": 3}}, r"here; did you mean every_updates\? Or write stop.updates"),
        (
            {"algorithm": {"name": "qsr", "compress": {"name": "sign", "share": 0.1}}},
            r"here; write algorithm.share \(a key of fedasync\)",
        ),
        ({"seeds": 3}, r"here; did you mean seed\? Or write sweep.seeds or tune.seeds"),
        ({"algorithm": {"name": "async_ps", "wait_for": 2}}, "; it is a key of k_sync"),
        ({"cluster": {"wrkers": 3}}, r"; did you mean workers\?"),
    ],
)
def test_unknown_key_has_its_remedy(document, told):
    with pytest.raises(ConfigError, match=f"unknown key *{told}"):
        parse(document)


@pytest.mark.parametrize(
    ("cluster", "told"),
    [
        ({"compute": {"name": "gamma", "mean": 0.1}}, "compute.name: expected law: gamma"),
        ({"slowdowns": [{"name": "crash", "at": 3}]}, "0.name: expected kind: crash"),
        ({"compute": {"mean": 0.1, "kind": "pareto"}}, "compute.kind: expected law: pareto"),
    ],
)
def test_name_under_another_key_gets_the_right_one(cluster, told):
    with pytest.raises(ConfigError, match=told):
        parse({"cluster": cluster})


@pytest.mark.parametrize(
    "name", ["laws", "law", "compute", "cluster.compute", "cluster.compute.law"]
)
def test_section_is_listed_by_its_place(name):
    first, *entries = describe_entries([name])
    assert first.startswith("laws (cluster.compute.law; each with per and speed)")
    assert any(entry.startswith("  gamma: ") for entry in entries)


@pytest.mark.parametrize("key", ["per", "cluster.compute.per"])
def test_key_that_is_asked_for_gets_its_place(key):
    with pytest.raises(ConfigError, match=r"it is a key, cluster\.compute\.per"):
        list(describe_entries([key]))


@pytest.mark.parametrize("term", ["direct all-reduce", "halving_doubling"])
def test_term_of_the_field_names_its_entry(term):
    with pytest.raises(ConfigError, match="see `laggard list all_reduce`"):
        list(describe_entries([term]))
