"""A claim's table in Markdown."""

import numpy as np
import xarray as xr

from laggard.experiments.claims.claim import Claim
from laggard.experiments.claims.exhibits import ClaimTable
from laggard.experiments.claims.statistics import SEED
from laggard.experiments.results.statistics import mean


def markdown_table(claim: Claim, table: ClaimTable, values: xr.DataArray, page: str) -> str:
    """A claim's table in Markdown: for each column our mean with its 95 % interval, and the paper's
    number.
    """
    columns, scale = values[table.columns].values.tolist(), 100 if table.percent else 1
    published = {of for row in table.paper.values() for of in row}
    called = [
        of if isinstance(of, str) and not of.isdigit() else f"{table.columns} {of}"
        for of in columns
    ]
    head = [name + " | paper" * (of in published) for of, name in zip(columns, called, strict=True)]
    lines = [
        f"**{table.title}** ([{claim.id}]({page}#{claim.id.lower()}))",
        "",
        f"| {table.rows} | {' | '.join(head)} |",
        "| --- |" + "".join(" ---: | ---: |" if of in published else " ---: |" for of in columns),
    ]
    counts: set[int] = set()
    for name in values[table.rows].values.tolist():
        cells = []
        for of in columns:
            own = values.sel({table.rows: name, table.columns: of})
            # seeds that this setting does not have
            own = own.dropna(SEED) if SEED in own.dims else own
            counts |= {own.sizes.get(SEED, 0)} - {0}
            cells += [
                _table_cell(own, scale),
                *([table.paper.get(name, {}).get(of, "")] if of in published else []),
            ]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    several = f"{min(counts)} to {max(counts)}" if len(counts) > 1 else f"{max(counts, default=0)}"
    seeds = f"n = {several} seeds, with the 95 % interval" if SEED in values.dims else ""
    others = "did not diverge" if table.lost == "diverged" else "got there where some did not"
    seeds += f", of those that {others}" * bool(np.isinf(values).any())
    seeds += ". " if seeds else ""
    source = f"Paper: {table.source}." if table.paper else ""
    return "\n".join([*lines, "", (seeds + source).strip()])


def _table_cell(values: xr.DataArray, scale: float) -> str:
    if SEED not in values.dims:
        return f"{float(values) * scale:.3g}"
    if not values.size:
        return "–"
    estimate = mean(values.values.tolist())
    finite = int(np.isfinite(values).sum())
    remark = f" ({finite} of {values.sizes[SEED]})" if finite < values.sizes[SEED] else ""
    return f"{estimate.value * scale:.2f} ± {estimate.half * scale:.2f}{remark}"
