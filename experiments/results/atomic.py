"""Files that are written whole or not at all."""

import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """A temporary file of this process beside `path`, for the body to fill; complete, it is given
    the name `path`.

    Raises:
        OSError: it cannot be written; names `path`, since the temporary name means nothing to the
            user.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{platform.node()}.{os.getpid()}.part")
    try:
        yield part
        part.replace(path)
    except OSError as error:
        raise OSError(
            error.errno, os.strerror(error.errno) if error.errno else str(error), str(path)
        ) from None
    finally:
        with suppress(OSError):  # it was never there, or its folder is not any more
            part.unlink()
