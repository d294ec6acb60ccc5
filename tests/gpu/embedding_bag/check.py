"""Runs the kernels on a case and reports the errors of their results."""

import ctypes
from collections.abc import Callable, Iterable, Iterator

import numpy as np

from tests.gpu import reference as numbers
from tests.gpu.embedding_bag import reference
from tests.gpu.embedding_bag.cases import BagCase, forward_sweep, update_sweep
from tests.gpu.embedding_bag.inputs import Inputs, make_inputs
from tests.gpu.embedding_bag.library import DTYPES, BagLibrary, EmulatedBagLibrary
from tests.gpu.embedding_bag.placed import Placed
from tests.gpu.library import Device
from tests.gpu.memory import OUTPUT_GUARD, Memory, Tensor

STRETCH = 64  # pairs that are added before others are: kStretch of runs.cuh


def _read(tensor: Tensor, dtype, *shape: int) -> np.ndarray:
    return _contents(tensor, "an output").view(dtype).reshape(shape).copy()


def _contents(tensor: Tensor, name: str) -> np.ndarray:
    data, intact = tensor.read()
    if not intact:
        raise AssertionError(f"numbers next to {name} were written")
    return data


def _require(library: BagLibrary, error: int, name: str) -> None:
    if error != 0:
        raise AssertionError(f"{name} returns {error}: {library.error(error)}")


# ---- Runs ---------------------------------------------------------------------------------------


def run_forward(library: BagLibrary, memory: Memory, case: BagCase, inputs: Inputs) -> np.ndarray:
    """Returns the output of the case's first use, [bags, dim], in its storage."""
    placed = Placed(memory, case, inputs)
    dtype = numbers.STORAGE[case.other]
    shape = (inputs.batches[0].pairs.num_bags, case.dim)
    output = placed.output(dtype, *shape)
    arguments = (placed.table, placed.uses[0].ids, DTYPES[case.other], output.address)
    error = library.forward(*arguments, memory.stream())
    memory.settle()
    _require(library, error, "forward")
    return _read(output, dtype, *shape)


def run_update(
    library: BagLibrary, memory: Memory, case: BagCase, inputs: Inputs
) -> list[np.ndarray]:
    """Returns the table and the slots after a step."""
    placed = Placed(memory, case, inputs)
    scalars = placed.input("scalars", np.array(reference.Scalars(), np.float32))
    workspace = placed.workspace(library)
    error = library.update(
        *(placed.table, placed.uses, case.uses, DTYPES[case.other], placed.optimizer),
        *(scalars, workspace.address, memory.stream()),
    )
    memory.settle()
    _require(library, error, "update")
    _contents(workspace, "the workspace")
    tensors = [placed.table_tensor, *placed.slot_tensors]
    before = [inputs.table, *inputs.slots]
    return [_read(t, b.dtype, *b.shape) for t, b in zip(tensors, before, strict=True)]


def run_gradient(
    library: BagLibrary, memory: Memory, case: BagCase, inputs: Inputs
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the rows that occur, and their summed gradients as the case stores its dtype."""
    placed = Placed(memory, case, inputs)
    dtype = numbers.STORAGE[case.dtype]
    most = sum(len(batch.ids) for batch in inputs.batches)
    workspace = placed.workspace(library)
    count = placed.output(np.int64, 1)
    rows, gradients = placed.output(np.int64, most), placed.output(dtype, most, case.dim)
    uses = (placed.table, placed.uses, case.uses)
    stream = memory.stream()
    error = library.count_rows(*uses, workspace.address, stream, count.address)
    other = error or library.gradient(
        *(*uses, DTYPES[case.other], DTYPES[case.dtype], workspace.address, stream),
        *(rows.address, gradients.address),
    )
    copied = (ctypes.c_int64 * 1)(-1)
    error = error or library.copy(copied, count.address, 8, stream) or library.wait(stream)
    memory.settle()
    _require(library, error, "count_rows and its copy")
    _require(library, other, "gradient")
    _contents(workspace, "the workspace")
    num_rows = int(_read(count, np.int64, 1)[0])
    if copied[0] != num_rows:
        raise AssertionError(f"{num_rows} rows are copied to the host as {copied[0]}")
    if not 0 <= num_rows <= most:
        raise AssertionError(f"count_rows counts {num_rows} rows of {most} ids")
    all_rows, all_gradients = _read(rows, np.int64, most), _read(gradients, dtype, most, case.dim)
    for rest in (all_rows[num_rows:], all_gradients[num_rows:]):
        if (rest.view(np.uint8) != OUTPUT_GUARD).any():
            raise AssertionError(f"more than {num_rows} rows are written")
    return all_rows[:num_rows], all_gradients[:num_rows]


# ---- Checks -------------------------------------------------------------------------------------


def _exact_upstream(case: BagCase, inputs: Inputs) -> list[np.ndarray]:
    return [numbers.widened(b.upstream, case.other).astype(np.float64) for b in inputs.batches]


def check_forward(library: BagLibrary, memory: Memory, case: BagCase) -> list[str | None]:
    """Output against float64."""
    if case.uses == 0:
        return []
    inputs = make_inputs(case)
    output = run_forward(library, memory, case, inputs)
    expected = reference.forward(inputs.exact_table(case.dtype), inputs.batches[0].pairs)
    return [reference.complaint("output", output, case.other, expected)]


def check_update(library: BagLibrary, memory: Memory, case: BagCase) -> list[str | None]:
    """Rows that occur (Adam: all) against float64; others keep their bits."""
    inputs = make_inputs(case)
    results = run_update(library, memory, case, inputs)
    rows, gradients = _expected_gradients(case, inputs)
    table = inputs.exact_table(case.dtype)
    if case.optimizer == "adam":
        values, errors = np.zeros((2, case.rows, case.dim))
        values[rows], errors[rows] = gradients
        rows, gradients = np.arange(case.rows), reference.Estimate(values, errors)
    slots = [slot[rows].astype(np.float64) for slot in inputs.slots]
    expected = reference.step(case.optimizer, reference.Scalars(), table[rows], slots, gradients)
    complaints = [reference.complaint("row", results[0][rows], case.dtype, expected.weights)]
    for turn, slot in enumerate(expected.slots):
        name = f"slot {turn} of row"
        complaints.append(reference.complaint(name, results[1 + turn][rows], "float32", slot))
    others = np.setdiff1d(np.arange(case.rows), rows)
    for after, before in zip(results, [inputs.table, *inputs.slots], strict=True):
        if after[others].tobytes() != before[others].tobytes():
            complaints.append("a row moves that does not occur")
    return complaints


def check_gradient(library: BagLibrary, memory: Memory, case: BagCase) -> list[str | None]:
    """Rows that occur, and their gradients, against float64; float32 ones bit by bit."""
    inputs = make_inputs(case)
    rows, gradients = run_gradient(library, memory, case, inputs)
    expected_rows, expected = _expected_gradients(case, inputs)
    if rows.tolist() != expected_rows.tolist():
        return [f"rows are {rows.tolist()}, not {expected_rows.tolist()}"]
    complaints = [reference.complaint("gradient", gradients, case.dtype, expected)]
    exact_factors = not any(mean for _, _, mean in case.columns)
    if case.other == case.dtype == "float32" and exact_factors and len(rows) > 0:
        pairs = [batch.pairs for batch in inputs.batches]
        ordered = reference.ordered_gradient(pairs, _exact_upstream(case, inputs), STRETCH)
        # A GPU rounds a product and a sum once; the emulator, as NumPy, rounds each.
        if isinstance(library, EmulatedBagLibrary) and ordered.tobytes() != gradients.tobytes():
            complaints.append("gradients are not added in the order of the ids")
    return complaints


def _expected_gradients(case: BagCase, inputs: Inputs) -> tuple[np.ndarray, reference.Estimate]:
    if case.uses == 0:
        empty = np.zeros((0, case.dim))
        return np.zeros(0, np.int64), reference.Estimate(empty, empty)
    pairs = [batch.pairs for batch in inputs.batches]
    return reference.gradient(pairs, _exact_upstream(case, inputs))


Check = Callable[[BagLibrary, Memory, BagCase], list[str | None]]
# What is checked, and on which cases (`long`: more of them).
CHECKS: tuple[tuple[Check, Callable[[bool], Iterator[BagCase]]], ...] = (
    (check_forward, forward_sweep),
    (check_update, update_sweep),
    (check_gradient, update_sweep),
)


def sweep(
    check: Check, library: BagLibrary, memory: Memory, cases: Iterable[BagCase]
) -> Iterator[tuple[BagCase, list[str]]]:
    """Checks case by case; yields each case with the descriptions of its errors."""
    for case in cases:
        if isinstance(library, EmulatedBagLibrary):
            library.set_device(Device(multiprocessors=case.multiprocessors))
        try:
            complaints = [complaint for complaint in check(library, memory, case) if complaint]
        except AssertionError as error:
            complaints = [str(error)]
        finally:
            memory.release()
        if isinstance(library, EmulatedBagLibrary) and (race := library.take_race()):
            complaints.append(f"garbage was read, first: {race}")
        yield case, complaints


def same_for_every_order(
    library: EmulatedBagLibrary, memory: Memory, case: BagCase, seeds: Iterable[int]
) -> list[str]:
    """Results must not depend on the order of threads and blocks, or on the number of blocks."""
    inputs = make_inputs(case)

    def results() -> list[bytes]:
        update = run_update(library, memory, case, inputs)
        forward = run_forward(library, memory, case, inputs)
        return [array.tobytes() for array in (*update, forward)]

    library.set_device(Device(1))
    first = results()
    complaints = []
    try:
        for seed in seeds:
            library.set_seed(seed)
            library.set_device(Device(1 + seed % 3))
            if results() != first:
                complaints.append(f"seed {seed}: other bits")
    finally:
        library.set_seed(0)
        memory.release()
    return complaints
