"""Products, correlations and transposes in the CPU's registers, as vectors of LLVM.

From loops over numbers LLVM makes code that adds into memory at each term, at a third of the speed
of the CPU. So these loops are written in LLVM's own terms. `compiler` puts this text into the
module that it compiles, where the constants and functions below replace those of `kernels`, which
have the same meaning and are slow. Nothing imports it, since it imports numba.

Source: Goto & van de Geijn, Anatomy of high-performance matrix multiplication, 2008.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from llvmlite import ir
from numba import config, types
from numba.core import cgutils
from numba.extending import intrinsic

from laggard.models.backends.compiled.kernels import LANES, SAMPLES, TILE

# Of the CPU that is compiled for. Without 512 bits, more sums would leave the registers.
TILE_ROWS, TILE_SUMS = 2, 2
if "+avx512f" in str(config.CPU_FEATURES):  # type: ignore[attr-defined]
    TILE_ROWS, TILE_SUMS = 8, 4
INDEX, LANE = ir.IntType(64), ir.IntType(32)
FLOAT = ir.FloatType()
FLOAT_BYTES = 4


def from_lanes(lanes: list[int]) -> Any:
    """The mask of a shuffle: the lane that each number of the new vector is taken from."""
    return ir.Constant(ir.VectorType(LANE, len(lanes)), lanes)


def start_of(context: Any, builder: Any, signature: Any, arguments: Any, number: int) -> Any:
    """The address of an argument that is an array."""
    array = context.make_array(signature.args[number])
    return array(context, builder, arguments[number]).data


def vector_at(builder: Any, start: Any, place: Any, width: int) -> Any:
    """The address of the vector of `width` numbers from `place` on."""
    address = builder.gep(start, [place])
    return builder.bitcast(address, ir.VectorType(FLOAT, width).as_pointer())


def size_of(context: Any, builder: Any, signature: Any, arguments: Any, number: int) -> Any:
    """The number of entries of an argument that is an array."""
    array = context.make_array(signature.args[number])
    return array(context, builder, arguments[number]).nitems


def entry_of(builder: Any, start: Any, number: Any) -> Any:
    """Entry `number` of an array."""
    return builder.load(builder.gep(start, [number]))


def add_times(builder: Any, total: Any, one: Any, other: Any) -> None:
    """Add a product to a variable that LLVM keeps in a register."""
    # "contract": rounded once, after the addition, where the CPU can
    product = builder.fmul(one, other, flags=("contract",))
    builder.store(builder.fadd(builder.load(total), product, flags=("contract",)), total)


def repeat(builder: Any, number: Any, times: int) -> Any:
    """A vector of equal numbers."""
    single = builder.insert_element(ir.Constant(ir.VectorType(FLOAT, times), None), number, LANE(0))
    return builder.shuffle_vector(single, single, from_lanes([0] * times))


@contextmanager
def for_steps(builder: Any, begin: Any, end: Any, step: int = 1) -> Iterator[Any]:
    """A loop from `begin` to below `end`, whose body is emitted within it."""
    with cgutils.for_range_slice(builder, begin, end, INDEX(step)) as (index, _):
        yield index


def variable_of(builder: Any, value: Any) -> Any:
    """A new variable with this value."""
    return cgutils.alloca_once_value(builder, value)  # type: ignore[no-untyped-call]


@intrinsic
def add_rows(
    typing: Any,
    a: Any,
    across: Any,
    down: Any,
    x: Any,
    x_places: Any,
    terms: Any,
    y: Any,
    y_places: Any,
    rows: Any,
) -> Any:
    """`add_rows` of `kernels`.

    The terms are added in their order, whatever the width of the CPU's vectors.
    """

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        given = context, builder, signature, arguments
        a, x, x_places, terms, y, y_places, rows = (
            start_of(*given, number) for number in (0, 3, 4, 5, 6, 7, 8)
        )
        across, down = arguments[1:3]
        place_count, term_count, row_count = (size_of(*given, number) for number in (4, 5, 8))
        nothing = ir.Constant(ir.VectorType(FLOAT, SAMPLES), None)

        def emit_rows(begin: Any, end: Any, together: int) -> None:
            """The rows from `begin` to `end`, with the sums of some of them in registers."""
            sums = [variable_of(builder, nothing) for _ in range(together)]
            with for_steps(builder, begin, end, together) as first:
                a_starts, y_starts = [], []
                for number in range(together):
                    row = builder.add(first, INDEX(number))
                    a_starts.append(builder.gep(a, [builder.mul(across, row)]))
                    y_starts.append(builder.gep(y, [entry_of(builder, rows, row)]))
                with for_steps(builder, INDEX(0), place_count) as place:
                    x_start = builder.gep(x, [entry_of(builder, x_places, place)])
                    y_place = entry_of(builder, y_places, place)
                    results = [vector_at(builder, start, y_place, SAMPLES) for start in y_starts]
                    for result, total in zip(results, sums, strict=True):
                        builder.store(builder.load(result, align=FLOAT_BYTES), total)
                    with for_steps(builder, INDEX(0), term_count) as term:
                        x_place = vector_at(
                            builder, x_start, entry_of(builder, terms, term), SAMPLES
                        )
                        x_vector = builder.load(x_place, align=FLOAT_BYTES)
                        entry = builder.mul(term, down)
                        for start, total in zip(a_starts, sums, strict=True):
                            factor = repeat(builder, entry_of(builder, start, entry), SAMPLES)
                            add_times(builder, total, factor, x_vector)
                    for result, total in zip(results, sums, strict=True):
                        builder.store(builder.load(total), result, align=FLOAT_BYTES)

        begin, together = INDEX(0), TILE_ROWS
        while together:
            # The rows that are left over go on in tiles of half the size, down to single rows.
            end = builder.sub(row_count, builder.urem(row_count, INDEX(together)))
            emit_rows(begin, end, together)
            begin, together = end, together // 2
        return context.get_dummy_value()

    whole = types.int64
    return types.void(a, whole, whole, x, x_places, terms, y, y_places, rows), emit


def make_correlation(rows: int) -> Any:
    """`correlate` of `kernels` for this number of rows of y."""

    @intrinsic
    def add_correlation(
        typing: Any, x: Any, places: Any, terms: Any, y: Any, apart: Any, sums: Any
    ) -> Any:
        return types.void(x, places, terms, y, types.int64, sums), emit

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        given = context, builder, signature, arguments
        x, places, terms, y, out = (start_of(*given, number) for number in (0, 1, 2, 3, 5))
        apart = arguments[4]
        y_starts = [builder.gep(y, [builder.mul(apart, INDEX(row))]) for row in range(rows)]
        x_starts = []
        for term in range(TILE_SUMS):
            x_starts.append(builder.gep(x, [entry_of(builder, terms, INDEX(term))]))
        targets, sums = [], []
        for number in range(rows * TILE_SUMS):
            target = vector_at(builder, out, INDEX(number * LANES), LANES)
            targets.append(target)
            sums.append(variable_of(builder, builder.load(target, align=FLOAT_BYTES)))
        # The sums stay in registers over all places: in memory each term would cost a store.
        with cgutils.for_range(builder, size_of(*given, 1)) as loop:
            y_place = builder.mul(loop.index, INDEX(SAMPLES))
            x_place = entry_of(builder, places, loop.index)
            for lane in range(0, SAMPLES, LANES):
                y_lanes = builder.add(y_place, INDEX(lane))
                x_lanes = builder.add(x_place, INDEX(lane))
                y_vectors = []
                for start in y_starts:
                    place = vector_at(builder, start, y_lanes, LANES)
                    y_vectors.append(builder.load(place, align=FLOAT_BYTES))
                for term, start in enumerate(x_starts):
                    place = vector_at(builder, start, x_lanes, LANES)
                    x_vector = builder.load(place, align=FLOAT_BYTES)
                    for row, y_vector in enumerate(y_vectors):
                        add_times(builder, sums[row * TILE_SUMS + term], y_vector, x_vector)
        for target, total in zip(targets, sums, strict=True):
            builder.store(builder.load(total), target, align=FLOAT_BYTES)
        return context.get_dummy_value()

    return add_correlation


def masks_of_exchange(half: int) -> tuple[Any, Any]:
    """The masks that give the upper row of a pair, and the lower one, after an exchange.

    Of each 2 * `half` lanes, the upper row keeps the first half and gets the first of the lower
    row; the lower row gets the second half of the upper one and keeps its own.
    """
    upper, lower = [], []
    for lane in range(TILE):
        lane_below = TILE + lane  # a mask numbers the lanes of the lower row from TILE on
        if lane & half:
            upper.append(lane_below - half)
            lower.append(lane_below)
        else:
            upper.append(lane)
            lower.append(lane + half)
    return from_lanes(upper), from_lanes(lower)


@intrinsic
def transpose_block(typing: Any, x: Any, x_apart: Any, y: Any, y_apart: Any) -> Any:
    """y' = x for TILE rows and columns, with row strides `x_apart` and `y_apart`, in numbers.

    The two corner blocks [A B; C D] -> [A C; B D] are exchanged, then those of each quarter, and so
    on: log2 TILE times.
    """

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        start = start_of(context, builder, signature, arguments, 0)
        rows = []
        for row in range(TILE):
            place = vector_at(builder, start, builder.mul(arguments[1], INDEX(row)), TILE)
            rows.append(builder.load(place, align=FLOAT_BYTES))
        half = TILE // 2
        while half:
            upper, lower = masks_of_exchange(half)
            for row in range(TILE):
                if row & half:
                    continue  # this is the lower row of a pair
                pair = rows[row], rows[row + half]
                rows[row] = builder.shuffle_vector(*pair, upper)
                rows[row + half] = builder.shuffle_vector(*pair, lower)
            half //= 2
        start = start_of(context, builder, signature, arguments, 2)
        for row in range(TILE):
            place = vector_at(builder, start, builder.mul(arguments[3], INDEX(row)), TILE)
            builder.store(rows[row], place, align=FLOAT_BYTES)
        return context.get_dummy_value()

    return types.void(x, types.int64, y, types.int64), emit


correlate_row = make_correlation(1)
correlate = make_correlation(TILE_SUMS)
