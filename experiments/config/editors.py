"""The JSON schema of a config, with which an editor completes and checks its keys; docstrings say
what they mean.
"""

import re
from collections.abc import Iterable
from inspect import cleandoc, getmro, isclass
from typing import Any

from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue

from laggard.experiments.config.clusters import PRESET, ClusterPart, NumberOr
from laggard.experiments.config.config import Config
from laggard.experiments.config.documents import BASE
from laggard.experiments.config.parts import NamedChoice
from laggard.experiments.config.rungs import COMPARED, GROWING
from laggard.experiments.config.schema import Described, Part
from laggard.experiments.config.search import BUDGET, RANGE_KINDS
from laggard.models.generated import RANGES
from laggard.simulator.errors import Settings, limits_of

SECTION = re.compile(r"^(?:Attributes|Args):\n((?: .*\n?|\n(?= ))*)", flags=re.MULTILINE)
ENTRY = re.compile(r"^    (\w+(?:, \w+)*): (.*(?:\n {5,}.*)*)", flags=re.MULTILINE)
JSON_LIMITS = {
    "above": "exclusiveMinimum",
    "least": "minimum",
    "below": "exclusiveMaximum",
    "most": "maximum",
}
"""The limits of a range, as JSON schema calls them."""


def describe_keys(part: type[Part]) -> dict[str, str]:
    """What each key of a part means, by the docstrings of the part and of what it builds; others
    are left out.
    """
    recipe = [part.recipe] if issubclass(part, Described) and "recipe" in vars(part) else []
    bases = (
        base
        for one in (*part.describes, part, *recipe)
        for base in reversed(getmro(one) if isclass(one) else [one])
    )
    return {key: text for base in bases for key, text in _described(base.__doc__ or "")}


def limits_of_keys(part: type[Part]) -> dict[str, dict[str, float]]:
    """The range of each key that has one, in the words of JSON schema."""
    recipe: Any = getattr(part, "recipe", None)
    if recipe in RANGES:
        return {
            key: {"minimum": least, "maximum": most}
            for key, (least, most) in RANGES[recipe].items()
        }
    if not (isclass(recipe) and issubclass(recipe, Settings)):
        return {}
    ranges = {key: limits._asdict() for key, _, limits in limits_of(recipe) if limits}  # type: ignore[arg-type]  # as there
    return {
        key: {word: limits[name] for name, word in JSON_LIMITS.items() if limits[name] is not None}
        for key, limits in ranges.items()
    }


def _described(docstring: str) -> Iterable[tuple[str, str]]:
    for section in SECTION.findall(cleandoc(docstring)):
        for keys, text in ENTRY.findall(section):
            yield from ((key, " ".join(text.split())) for key in keys.split(", "))


DIALECT = "https://json-schema.org/draft/2020-12/schema"


class ConfigSchema(GenerateJsonSchema):
    """Pydantic's generator, which looks into the parts that a config chooses by name, and into
    their docstrings.
    """

    def model_schema(self, schema: Any) -> JsonSchemaValue:
        found, part = super().model_schema(schema), schema["cls"]
        meanings, limits = describe_keys(part), limits_of_keys(part)
        for key, said in found.get("properties", {}).items():
            said |= limits.get(key, {})
            if key in meanings:
                said.setdefault("description", meanings[key])
        if part is ClusterPart:  # expanded before it is parsed
            found["properties"]["preset"] = {
                "enum": list(PRESET.parts),
                "description": "a cluster by name",
            }
        return found

    def function_before_schema(self, schema: Any) -> JsonSchemaValue:
        make = schema["function"]["function"]
        if isinstance(make, NamedChoice):
            return self._choice(make)
        if isinstance(make, NumberOr):
            simple = [{"type": "number"}, *[{"type": "null"}] * make.null]
            return {"anyOf": [*simple, *self._choice(make.choice)["anyOf"]]}
        model = getattr(make, "model", None)
        if model is None:
            return super().function_before_schema(schema)
        model.model_rebuild()
        return self.generate_inner(model.__pydantic_core_schema__)

    def tagged_union_schema(self, schema: Any) -> JsonSchemaValue:
        return {"anyOf": super().tagged_union_schema(schema)["oneOf"]}

    def _choice(self, choice: NamedChoice) -> JsonSchemaValue:
        """Any of the parts; a name with a colon is one of the user's own, which has keys of its
        own.
        """
        found: list[JsonSchemaValue] = []
        for part in choice.parts.values():
            part.model_rebuild()
            found.append(self.generate_inner(part.__pydantic_core_schema__))
        own = {"type": "string", "pattern": ":"}
        found.append({"type": "object", "properties": {choice.tag: own}, "required": [choice.tag]})
        if choice.tag == "name":
            found += [{"enum": list(choice.parts)}, own]
        return {"anyOf": found}


def _search_schema() -> dict[str, Any]:
    """The JSON schema of `sweep.search`."""
    values = {"choice": {"type": "array", "minItems": 1}}
    ends = {"type": "array", "items": {"type": "number"}, "minItems": 2, "maxItems": 2}
    kinds = {kind: values.get(kind, ends) for kind in RANGE_KINDS}
    drawn = {
        "type": "object",
        "properties": kinds,
        "additionalProperties": False,
        "minProperties": 1,
    }
    rungs = {
        "key": {"enum": list(GROWING)},
        "by": {"enum": list(COMPARED)},
        "factor": {"type": "integer", "minimum": 2},
        **{key: {"type": "number", "exclusiveMinimum": 0} for key in ("from", "to")},
    }
    forms: dict[str, dict[str, Any]] = {
        "only": {"type": "array", "items": {"type": "integer"}},
        "halving": {"type": "object", "properties": rungs, "additionalProperties": False},
    }
    number = {"type": "integer", "minimum": 0}
    counts = {key: {**forms.get(key, number), "description": said} for key, said in BUDGET.items()}
    return {
        "type": "object",
        "properties": counts,
        "additionalProperties": drawn,
        "description": SEARCH,
    }


SEARCH = "dotted key -> the range that it is drawn from, instead of a grid's values"


def config_schema() -> dict[str, Any]:
    """The JSON schema (draft 2020-12) of a config: keys, types, ranges and defaults, entries of
    one's own aside.
    """
    schema = Config.model_json_schema(schema_generator=ConfigSchema)
    for part in schema["$defs"].values():
        part.pop("required", None)  # a key may be swept, or stand in the base
    schema["properties"]["sweep"]["properties"] = {"search": _search_schema()}
    schema["properties"][BASE] = {
        "type": "string",
        "description": "the config that this one changes",
    }
    return {"$schema": DIALECT, **schema}
