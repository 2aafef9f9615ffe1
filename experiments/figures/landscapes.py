"""The loss around a final model, and the way that led there."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm, Normalize
from matplotlib.figure import Figure

from experiments.figures.look import PALETTE, drawing, legend, saved, several
from experiments.lines import Drawn, Label, shortened, titles

RUNS, MARGIN, CHUNK = 4, 0.3, 32


class Plane(NamedTuple):
    """A plane through a final model.

    Attributes:
        directions: two of them, `(2, params)`.
        way: the models on the way there, in their coordinates `(evaluations, 2)`.
        explained: the share of the way's squared length along each direction.
    """

    directions: np.ndarray
    way: np.ndarray
    explained: tuple[float, float]


def landscape(
    results: Sequence[Drawn] | Drawn,
    path: str | Path | None = None,
    directions: Literal["pca", "random"] = "pca",
    points: int = 21,
    member: int = 0,
    seed: int = 0,
    label: Label | None = None,
) -> Figure:
    """The test loss around the final model in a plane, with the models evaluated on the way projected into it.

    `pca`: the two main directions of the way, the principal components of w_t - w_final over evaluations t, about 0;
    the axes say which share of sum_t |w_t - w_final|^2 lies along each. `random`: two normal directions, each filter of
    which has the norm of the model's filter, biases left out; the way is projected by least squares.

    Needs `evaluate.keep_models`, and evaluates `points`^2 models a run on the test set. Of several runs the first four.

    Args:
        directions: `pca` or `random`.
        points: of the grid, in each direction.
        member: of the ensemble.
        seed: of the random directions.

    Raises:
        ValueError: a run has kept no models, or less than three; the member's final model is not finite.

    Source: Li et al. (2018), arXiv 1712.09913, sections 4 and 7.
    """
    from experiments.build import task

    results = several(results)
    if directions not in ("pca", "random"):
        raise ValueError(f"directions: expected pca or random, got {directions!r}")
    shown = results[:RUNS]
    ways = [_way(result, member) for result in shown]
    columns = min(len(shown), 2)
    rows = math.ceil(len(shown) / columns)
    with drawing(8 if columns > 1 else 5.2, 0.7 + rows * (3.4 if columns > 1 else 4.2)) as figure:
        panels = figure.subplots(rows, columns, squeeze=False)
        for axes, result, way, name in zip(panels.flat, shown, ways, titles(results, label), strict=False):
            learnt = task(result.config)
            pca = directions == "pca"
            plane = principal(way) if pca else filterwise(way, _shapes(learnt, way), np.random.default_rng(seed))
            _surface(figure, axes, *surface(learnt, way[-1], plane, points, 0.0 if pca else 1.0), plane)
            axes.set_title(shortened(name, 100 // columns) if len(shown) > 1 else "")
            for axis, share, which in zip((axes.set_xlabel, axes.set_ylabel), plane.explained, ("1", "2"), strict=True):
                axis(f"{'main' if pca else 'random'} direction {which} ({100 * share:.3g} % of the way)")
        for axes in panels.flat[len(shown) :]:
            axes.set_visible(False)
        counts = sorted({len(way) for way in ways})
        n = f"n = {counts[0]}" if len(counts) == 1 else f"n = {counts[0]} to {counts[-1]}"
        units = "axes in units of |w|" if directions == "pca" else "axes in units of filter-normalised directions"
        more = f"{len(results) - RUNS} more runs are not shown" * (len(results) > RUNS)
        legend(figure, list(panels.flat), [f"way: {n} evaluations, projected; member {member}", units, more])
    return saved(figure, path)


def principal(way: np.ndarray) -> Plane:
    """The plane of a way's two main directions, unit vectors, through its last model.

    Args:
        way: models `(evaluations, params)`.
    """
    apart = way - way[-1]
    _, sizes, directions = np.linalg.svd(apart, full_matrices=False)
    shares = sizes**2 / max((sizes**2).sum(), np.finfo(float).tiny)
    return Plane(directions[:2], apart @ directions[:2].T, (float(shares[0]), float(shares[1])))


def filterwise(way: np.ndarray, shapes: Sequence[tuple[int, ...]], rng: np.random.Generator) -> Plane:
    """The plane of two random directions whose filters have the norms of the last model's, through that model.

    A filter is a row of a weight of two dimensions or more; one-dimensional parameters do not move, unless there is
    nothing else.
    """
    directions = np.zeros((2, way.shape[1]))
    flat = all(len(shape) < 2 for shape in shapes)
    for direction in directions:
        start = 0
        for shape in shapes:
            here = slice(start, start + math.prod(shape))
            start = here.stop
            if len(shape) > 1 or flat:
                filters = shape[0] if len(shape) > 1 else 1
                rows = rng.standard_normal((filters, math.prod(shape) // filters))
                own = way[-1][here].reshape(rows.shape)
                norms = np.linalg.norm(own, axis=1, keepdims=True) / np.linalg.norm(rows, axis=1, keepdims=True)
                direction[here] = (rows * norms).ravel()
    apart = way - way[-1]
    coordinates = np.linalg.lstsq(directions.T, apart.T, rcond=None)[0].T
    whole = max(np.square(apart).sum(), np.finfo(float).tiny)
    each = np.square(apart @ directions.T / np.linalg.norm(directions, axis=1)).sum(0) / whole
    return Plane(directions, coordinates, (float(each[0]), float(each[1])))


def surface(
    task: Any, final: np.ndarray, plane: Plane, points: int, least: float = 0.0
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Coordinates `(points,)` along each direction, and the test loss at `final` + x d_1 + y d_2 `(points, points)`.

    They span the way, with some room around it, and reach at least from -`least` to `least`.
    """
    low, high = plane.way.min(0), plane.way.max(0)
    room = MARGIN * np.maximum(high - low, 0.3 * (high - low).max() or 1.0)
    low, high = np.minimum(low - room, -least), np.maximum(high + room, least)
    x, y = (np.linspace(low[axis], high[axis], points) for axis in (0, 1))
    grid = np.stack([axis.ravel() for axis in np.meshgrid(x, y)], axis=1)
    dtype, device = getattr(task, "dtype", torch.float32), getattr(task, "device", "cpu")
    losses = []
    for part in np.array_split(grid, math.ceil(len(grid) / CHUNK)):
        models = torch.from_numpy(final + part @ plane.directions).to(device=device, dtype=dtype)
        losses.append(task.evaluate(models)["test_loss"].detach().cpu().numpy())
    return x, y, np.concatenate(losses).reshape(points, points)


def _way(result: Drawn, member: int) -> np.ndarray:
    """The models that a run evaluated `(evaluations, params)`, in double precision."""
    models, name = getattr(result, "models", None), result.config.name
    if models is None:
        raise ValueError(f"{name}: no models on the way were kept: run it with evaluate.keep_models=true")
    if not 0 <= member < models.shape[1]:
        raise ValueError(f"{name}: member: expected 0 to {models.shape[1] - 1}, got {member}")
    way = models[:, member].double().numpy()
    if not np.isfinite(way[-1]).all():
        raise ValueError(f"{name}: member {member} diverged: there is no final model to look around")
    way = way[np.isfinite(way).all(1)]
    if len(way) < 3 or way.shape[1] < 2:
        raise ValueError(
            f"{name}: expected three evaluations or more of a model of two parameters or more, got {way.shape}"
        )
    return way


def _shapes(task: Any, way: np.ndarray) -> Sequence[tuple[int, ...]]:
    """The shapes of the model's parameters, in their order; of a task that does not say, one vector."""
    return task.shapes() if hasattr(task, "shapes") else [(way.shape[1],)]


def _surface(figure: Figure, axes: Axes, x: np.ndarray, y: np.ndarray, losses: np.ndarray, plane: Plane) -> None:
    """Filled contours of the loss, and the way over them."""
    finite = losses[np.isfinite(losses)]
    positive = finite.min() > 0
    norm = LogNorm(finite.min(), finite.max()) if positive else Normalize(finite.min(), finite.max())
    levels = np.geomspace(finite.min(), finite.max(), 16) if positive else np.linspace(finite.min(), finite.max(), 16)
    filled = axes.contourf(x, y, np.ma.masked_invalid(losses), np.unique(levels), cmap="viridis", norm=norm)
    figure.colorbar(filled, ax=axes, label="test loss", format="%.2g")
    for colour, width in (("white", 3), ("black", 1.2)):
        axes.plot(*plane.way.T, "-", color=colour, linewidth=width)
    axes.plot(*plane.way.T, "o", color="black", markeredgecolor="white", markersize=4, label="evaluations")
    axes.plot(*plane.way[0], "s", color=PALETTE[1], markeredgecolor="white", markersize=7, label="start")
    axes.plot(
        *plane.way[-1], "*", color=PALETTE[4], markeredgecolor="black", markersize=12, label="final model", zorder=5
    )
    axes.grid(visible=False)
