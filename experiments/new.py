"""`laggard new`: an entry of one's own to begin with, a config that runs it and a test that checks it."""

import keyword
import re
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from string import Template

from experiments.errors import ConfigError, unknown_name

TEMPLATES = Path(__file__).with_name("templates")


def new(kind: str, name: str, folder: str | Path = ".") -> Sequence[Path]:
    """Write `<name>.py`, `<name>.yaml` and `test_<name>.py` into `folder`; they run as they are.

    Args:
        kind: algorithm, compensation, law, model or topology.
        name: of the module, in snake case; its class is called the same in CamelCase.

    Raises:
        ConfigError: there is no such kind, the name will not do, or one of the files is there already.
        OSError: the folder cannot be written.
    """
    kinds = sorted(path.name for path in TEMPLATES.iterdir() if path.is_dir())
    if kind not in kinds:
        raise ConfigError("KIND", unknown_name("", kind, kinds).problem, "laggard new")
    if not re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", name) or keyword.iskeyword(name):
        raise ConfigError("NAME", f"expected a name in snake case, as my_{kind}, got {name!r}", "laggard new")
    sources = sorted((TEMPLATES / kind).glob("*.txt"), key=lambda path: path.name != "name.py.txt")
    files = {Path(folder) / source.stem.replace("name", name): source for source in sources}
    for file in files:
        if file.exists():
            raise ConfigError("", "is there already: nothing is written", str(file))
    if find_spec(name) is not None:
        raise ConfigError("NAME", f"there is a module {name} already: choose another name, as my_{name}", "laggard new")
    words = {"name": name, "Class": "".join(word.capitalize() for word in name.split("_"))}
    for file, source in files.items():
        with file.open("x", encoding="utf-8") as text:
            text.write(Template(source.read_text(encoding="utf-8")).substitute(words))
    return list(files)
