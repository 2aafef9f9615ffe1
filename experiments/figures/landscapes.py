"""The loss around a final model, and the trajectory of the run."""

import math
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm, Normalize
from matplotlib.figure import Figure

from laggard.experiments.config.grid import RunSpec
from laggard.experiments.figures.lines import Label, shorten, titles
from laggard.experiments.figures.style import (
    PALETTE,
    File,
    Runs,
    as_sequence,
    legend,
    omission_note,
    panels_of,
    span,
    styled_figure,
)
from laggard.experiments.results.result import Result

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
    results: Runs,
    path: File = None,
    directions: Literal["pca", "random"] = "pca",
    points: int = 21,
    member: int = 0,
    seed: int = 0,
    label: Label | None = None,
) -> Figure:
    """The test loss around the final model in a plane, with the models evaluated on the way
    projected into it.

    `pca`: the two main directions of the way, the principal components of w_t - w_final over
    evaluations t, about 0; the axes say which share of sum_t |w_t - w_final|^2 lies along each.
    `random`: two normal directions, each filter of which has the norm of the model's filter, biases
    left out; the way is projected by least squares.

    Needs `evaluate.keep_models`, and evaluates `points`^2 models a run on the test set. Of several
    runs the first four.

    Args:
        points: of the grid, in each direction.
        member, seed: of the ensemble; of random directions.

    Raises:
        ValueError: a run has kept no models, or less than three; the member's final model is not
            finite.
    Source: Li et al. (2018), arXiv 1712.09913, sections 4 and 7.
    """
    results = as_sequence(results)
    if directions not in ("pca", "random"):
        raise ValueError(f"directions: expected pca or random, got {directions!r}")
    shown, columns = results[:RUNS], min(len(results), 2)
    ways = [_trajectory(result, member) for result in shown]
    height = 0.7 + math.ceil(len(shown) / 2) * (3.4 if columns > 1 else 4.2)
    with styled_figure(8 if columns > 1 else 5.2, height, path) as figure:
        panels = panels_of(figure, len(shown), columns)
        for axes, result, way, name in zip(
            panels, shown, ways, titles(results, label), strict=False
        ):
            _landscape(
                figure, axes, RunSpec(result.config).task(), way, directions == "pca", points, seed
            )
            axes.set_title(shorten(name, 100 // columns) if len(shown) > 1 else "")
        evaluations = f"way: n = {span(map(len, ways))} evaluations, projected; member {member}"
        units = "axes in units of " + (
            "|w|" if directions == "pca" else "filter-normalised directions"
        )
        legend(figure, panels, [evaluations, units, omission_note(len(results), len(shown))])
    return figure


def principal(way: np.ndarray) -> Plane:
    """The plane of a way's two main directions, unit vectors, through its last model.

    Args:
        way: models `(evaluations, params)`.
    """
    apart = way - way[-1]
    _, sizes, directions = np.linalg.svd(apart, full_matrices=False)
    shares = sizes**2 / max((sizes**2).sum(), np.finfo(float).tiny)
    return Plane(directions[:2], apart @ directions[:2].T, (float(shares[0]), float(shares[1])))


def filterwise(
    way: np.ndarray, shapes: Sequence[tuple[int, ...]], rng: np.random.Generator
) -> Plane:
    """The plane of two random directions whose filters have the norms of the last model's, through
    that model.

    A filter is a row of a weight of two dimensions or more; one-dimensional parameters do not move,
    unless there is nothing else.
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
                norms = np.linalg.norm(own, axis=1, keepdims=True) / np.linalg.norm(
                    rows, axis=1, keepdims=True
                )
                direction[here] = (rows * norms).ravel()
    apart = way - way[-1]
    coordinates = np.linalg.lstsq(directions.T, apart.T, rcond=None)[0].T
    whole = max(np.square(apart).sum(), np.finfo(float).tiny)
    each = np.square(apart @ directions.T / np.linalg.norm(directions, axis=1)).sum(0) / whole
    return Plane(directions, coordinates, (float(each[0]), float(each[1])))


def surface(
    task: Any, final: np.ndarray, plane: Plane, points: int, least: float = 0.0
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Coordinates `(points,)` along each direction, and the test loss at `final` + x d_1 + y d_2
    `(points, points)`.

    They span the way, with a margin around it, and reach at least from -`least` to `least`.
    """
    low, high = plane.way.min(0), plane.way.max(0)
    margin = MARGIN * np.maximum(high - low, 0.3 * (high - low).max() or 1.0)
    low, high = np.minimum(low - margin, -least), np.maximum(high + margin, least)
    x, y = (np.linspace(low[axis], high[axis], points) for axis in (0, 1))
    grid = np.stack([axis.ravel() for axis in np.meshgrid(x, y)], axis=1)
    dtype, device = getattr(task, "dtype", torch.float32), getattr(task, "device", "cpu")
    losses = []
    for part in np.array_split(grid, math.ceil(len(grid) / CHUNK)):
        models = torch.from_numpy(final + part @ plane.directions).to(device=device, dtype=dtype)
        losses.append(task.evaluate(models)["test_loss"].detach().cpu().numpy())
    return x, y, np.concatenate(losses).reshape(points, points)


def _trajectory(result: Result, member: int) -> np.ndarray:
    """The models that a run evaluated `(evaluations, params)`, in double precision."""
    models, name = getattr(result, "models", None), result.config.name
    if models is None:
        raise ValueError(
            f"{name}: no models on the way were kept: run it with evaluate.keep_models=true"
        )
    if not 0 <= member < models.shape[1]:
        raise ValueError(f"{name}: member: expected 0 to {models.shape[1] - 1}, got {member}")
    way: np.ndarray = models[:, member].double().numpy()
    if not np.isfinite(way[-1]).all():
        raise ValueError(
            f"{name}: member {member} diverged: there is no final model to look around"
        )
    way = way[np.isfinite(way).all(1)]
    if len(way) < 3 or way.shape[1] < 2:
        expected = "three evaluations or more of a model of two parameters or more"
        raise ValueError(f"{name}: expected {expected}, got {way.shape}")
    return way


def _landscape(
    figure: Figure, axes: Axes, learnt: Any, way: np.ndarray, pca: bool, points: int, seed: int
) -> None:
    """Filled contours of the loss in the plane of the way's main directions, or of random ones, and
    the way.
    """
    shapes = (
        [*learnt.shapes().values()] if hasattr(learnt, "shapes") else [(way.shape[1],)]
    )  # of a task that says none, one vector
    plane = principal(way) if pca else filterwise(way, shapes, np.random.default_rng(seed))
    x, y, losses = surface(learnt, way[-1], plane, points, 0.0 if pca else 1.0)
    finite = losses[np.isfinite(losses)]
    low, high, positive = finite.min(), finite.max(), finite.min() > 0
    levels = (np.geomspace if positive else np.linspace)(low, high, 16)
    norm = (LogNorm if positive else Normalize)(low, high)
    filled = axes.contourf(
        x, y, np.ma.masked_invalid(losses), np.unique(levels), cmap="viridis", norm=norm
    )
    figure.colorbar(filled, ax=axes, label="test loss", format="%.2g")
    for colour, width in (("white", 3), ("black", 1.2)):
        axes.plot(*plane.way.T, "-", color=colour, linewidth=width)
    axes.plot(
        *plane.way.T, "o", color="black", markeredgecolor="white", markersize=4, label="evaluations"
    )
    axes.plot(
        *plane.way[0], "s", color=PALETTE[1], markeredgecolor="white", markersize=7, label="start"
    )
    axes.plot(*plane.way[-1], "*", color=PALETTE[4], markeredgecolor="black", markersize=12, label="final model",
              zorder=5)  # fmt: skip
    kind, (first, second) = "main" if pca else "random", plane.explained
    axes.set_xlabel(f"{kind} direction 1 ({100 * first:.3g} % of the way)")
    axes.set_ylabel(f"{kind} direction 2 ({100 * second:.3g} % of the way)")
    axes.grid(visible=False)
