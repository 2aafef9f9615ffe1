"""The tutorials of the site's first page: each notebook by its title and its first picture."""

import base64
import json
from collections.abc import Iterator, Mapping
from html import escape
from io import BytesIO
from pathlib import Path
from typing import Any

from PIL import Image

NOTEBOOKS = Path(__file__).parents[1] / "notebooks"
SIZE = (480, 300)  # pixels of a thumbnail, at most


def gallery() -> str:
    """Links to the notebooks with thumbnails, in the order of their numbers."""
    cards = [card(path) for path in sorted(NOTEBOOKS.glob("*.ipynb"))]
    return "\n".join(['<div class="gallery">', *cards, "</div>"])


def card(path: Path) -> str:
    """A link to a notebook: its first picture above its title."""
    notebook = json.loads(path.read_text(encoding="utf-8"))
    title = "".join(notebook["cells"][0]["source"]).splitlines()[0].removeprefix("# ")
    picture = next(pictures(notebook), None)
    image = ""
    if picture is not None:
        image = f'<img src="data:image/png;base64,{thumbnail(picture)}" alt="">'
    return f'<a href="../notebooks/{path.stem}.html">{image}<span>{escape(title)}</span></a>'


def pictures(notebook: Mapping[str, Any]) -> Iterator[bytes]:
    """The pictures (PNG) that the cells of a notebook have drawn."""
    for cell in notebook["cells"]:
        for output in cell.get("outputs", []):
            drawn = output.get("data", {}).get("image/png")
            if drawn:
                yield base64.b64decode(drawn)


def thumbnail(picture: bytes) -> str:
    """A small copy of a picture, in 64 colours, as base64."""
    small = Image.open(BytesIO(picture)).convert("RGB")
    small.thumbnail(SIZE)
    stream = BytesIO()
    small.quantize(64).save(stream, format="png", optimize=True)
    return base64.b64encode(stream.getvalue()).decode()
