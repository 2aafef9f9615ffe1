"""Products and transposes of matrices in the CPU's registers, as vectors of LLVM.

From loops over numbers LLVM makes code that adds into memory at each term, at a third of the speed
of the CPU. So these two loops are written in LLVM's own terms. `compiler` puts this text into each
module that it compiles, where TILE_ROWS, `add_row`, `add_rows` and `transpose_block` replace those
of `kernels`, which have the same meaning and are slow. Nothing imports it, since it imports numba.

Source: Goto & van de Geijn, Anatomy of high-performance matrix multiplication, 2008.
"""

from typing import Any

from llvmlite import ir
from numba import config, types
from numba.core import cgutils
from numba.extending import intrinsic

from laggard.models.backends.compiled.kernels import SAMPLES, TILE

# Of the CPU that is compiled for. Without 512 bits, the sums of eight rows leave the registers.
TILE_ROWS = 2
if "+avx512f" in str(config.CPU_FEATURES):  # type: ignore[attr-defined]
    TILE_ROWS = 8
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


def make_product(rows: int) -> Any:
    """A function that adds the product of two matrices to `rows` rows of y: for b < SAMPLES,

        y[m * apart + b] += sum_k a[m * across + k * down] x[k * SAMPLES + b]

    with the terms k in their order, whatever the width of the CPU's vectors.
    """

    @intrinsic
    def add_product(
        typing: Any, a: Any, across: Any, down: Any, x: Any, y: Any, apart: Any, terms: Any
    ) -> Any:
        whole = types.int64
        return types.void(a, whole, whole, x, y, whole, whole), emit

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        a, x, y = (start_of(context, builder, signature, arguments, at) for at in (0, 3, 4))
        across, down, apart, terms = (arguments[at] for at in (1, 2, 5, 6))
        places, sums = [], []
        for row in range(rows):
            place = vector_at(builder, y, builder.mul(apart, INDEX(row)), SAMPLES)
            before = builder.load(place, align=FLOAT_BYTES)
            places.append(place)
            # a variable here, which LLVM keeps in a register
            sums.append(cgutils.alloca_once_value(builder, before))  # type: ignore[no-untyped-call]
        with cgutils.for_range(builder, terms) as loop:
            x_place = vector_at(builder, x, builder.mul(loop.index, INDEX(SAMPLES)), SAMPLES)
            x_vector = builder.load(x_place, align=FLOAT_BYTES)
            term = builder.mul(loop.index, down)
            for row in range(rows):
                entry = builder.add(builder.mul(across, INDEX(row)), term)
                number = builder.load(builder.gep(a, [entry]))
                single = builder.insert_element(x_vector, number, LANE(0))
                repeated = builder.shuffle_vector(single, single, from_lanes([0] * SAMPLES))
                # "contract": rounded once, after the addition, where the CPU can
                product = builder.fmul(repeated, x_vector, flags=("contract",))
                total = builder.fadd(builder.load(sums[row]), product, flags=("contract",))
                builder.store(total, sums[row])
        for place, total in zip(places, sums, strict=True):
            builder.store(builder.load(total), place, align=FLOAT_BYTES)
        return context.get_dummy_value()

    return add_product


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
    """y' = x for TILE rows and columns, whose rows are `apart` numbers apart.

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
                    continue  # it is the lower row of a pair
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


add_row = make_product(1)
add_rows = make_product(TILE_ROWS)
