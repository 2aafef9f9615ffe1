"""How far a simulation has come, on a terminal."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter

from experiments.config import Config
from simulator import Mileage

PERIOD = 0.1  # seconds of wall time between two looks: drawing may not slow the simulation down


@contextmanager
def bar(config: Config) -> Iterator[Callable[[Mileage], None]]:
    """A progress bar in the unit of the first limit that `stop` sets; yields what is to be told the mileage."""
    from tqdm import tqdm

    unit = next(limit for limit in ("epochs", "updates", "gradients", "time") if getattr(config.stop, limit))
    shape = "{desc} {percentage:3.0f}%|{bar:6}| {elapsed}<{remaining}{postfix}"
    total = getattr(config.stop, unit)
    look = {"total": total, "desc": config.name[:12], "bar_format": shape}  # so that it fits in 100 columns
    with tqdm(**look, mininterval=0, leave=False) as drawn:
        start = last = perf_counter()

        def watch(mileage: Mileage) -> None:
            nonlocal last
            now = perf_counter()
            if now - last < PERIOD:
                return
            last = now
            drawn.set_postfix_str(said(mileage, now - start), refresh=False)
            drawn.update(min(getattr(mileage, unit), total) - drawn.n)

        yield watch


def said(mileage: Mileage, seconds: float) -> str:
    """The mileage after so many `seconds` of wall time, in few words."""
    rate = mileage.updates / seconds
    return f"{mileage.time:.4g} s simulated, {mileage.updates:,.0f} updates, {rate:,.0f} updates/s"
