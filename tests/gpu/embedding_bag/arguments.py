"""Arguments that the interface excludes."""

import ctypes
from collections.abc import Callable

import numpy as np

from tests.gpu.embedding_bag import reference
from tests.gpu.embedding_bag.cases import BagCase
from tests.gpu.embedding_bag.inputs import make_inputs
from tests.gpu.embedding_bag.library import BAD_ARGUMENT, BagLibrary, Column
from tests.gpu.embedding_bag.placed import Placed
from tests.gpu.memory import Memory


def check_arguments(library: BagLibrary, memory: Memory) -> list[str]:
    """Every argument that the interface excludes is refused, and nothing is launched."""
    case = BagCase(8, 3, ((2, 5, False), (1, 4, True)), optimizer="adam")
    inputs = make_inputs(case)
    complaints = []
    scalars = np.array(reference.Scalars(), np.float32)
    for name, change, functions in _wrong_arguments():
        placed = Placed(memory, case, inputs)
        arguments = dict(
            table=placed.table, use=placed.uses[0], optimizer=placed.optimizer,
            dtype=0, sum_dtype=0,
            scalars=placed.input("scalars", scalars), uses=1,
            workspace=placed.workspace(library).address,
            output=placed.output(np.float32, 6 * 8).address,
        )  # fmt: skip
        array = placed.uses
        change(arguments)
        a = arguments
        uses = (a["table"], array if a["use"] else None, a["uses"])
        calls = dict(
            forward=lambda a=a, p=placed: library.forward(
                *(a["table"], p.uses[0].ids, a["dtype"], a["output"], memory.stream())
            ),
            workspace=lambda uses=uses: library.workspace(*uses),
            update=lambda a=a, uses=uses: library.update(
                *(*uses, a["dtype"], a["optimizer"], a["scalars"], a["workspace"]),
                memory.stream(),
            ),
            count_rows=lambda a=a, uses=uses: library.count_rows(
                *(*uses, a["workspace"], memory.stream(), a["output"])
            ),
            gradient=lambda a=a, uses=uses: library.gradient(
                *(*uses, a["dtype"], a["sum_dtype"], a["workspace"], memory.stream()),
                *(a["output"], a["output"]),
            ),
        )
        for function in functions.split():
            if (result := calls[function]()) != BAD_ARGUMENT:
                complaints.append(f"{function}, {name}: {result} instead of {BAD_ARGUMENT}")
        memory.settle()
        memory.release()
    if not all(library.error(number) for number in (0, -1, -2, -3, 1)):
        complaints.append("an error number has no text")
    return complaints


_ALL = "forward workspace update count_rows gradient"
_SORTED = "workspace update count_rows gradient"


def _wrong_arguments() -> list[tuple[str, Callable[[dict], None], str]]:
    """Returns (name, change of the arguments, functions that must refuse it)."""

    def of_table(field, value, functions=_ALL):
        def change(a):
            setattr(a["table"], field, value)

        return f"table.{field} = {value}", change, functions

    def of_ids(field, value, functions=_ALL):
        def change(a):
            setattr(a["use"].ids, field, value)

        return f"ids.{field} = {value}", change, functions

    def of_column(field, value):
        def change(a):
            setattr(a["use"].ids.columns[1], field, value)

        return f"column.{field} = {value}", change, _ALL

    def of_call(name, value, functions):
        return f"{name} = {value}", lambda a: a.update({name: value}), functions

    def no_slot(a):
        a["optimizer"].slots[1] = None

    def bad_kind(a):
        a["optimizer"].kind = 5

    def null_gradient(a):
        a["use"].gradient = None

    return [
        *(of_table("rows", value) for value in (-1, 2**32)),
        *(of_table("dim", value) for value in (0, -1, 2**24 + 1)),
        *(of_table("dtype", value) for value in (-1, 3)),
        of_table("values", None, "forward update"),
        *(of_ids("id_bytes", value) for value in (0, 2, 16)),
        *(of_ids("num_ids", value) for value in (-1, 8, 10, 2**60)),
        *(of_ids("num_samples", value) for value in (-1, 2, 4, 2**62)),
        *(of_ids("num_columns", value) for value in (-1, 0, 1)),
        of_ids("splits", 256),  # ragged ids have one column
        of_ids("ids", None),
        of_ids("columns", ctypes.POINTER(Column)()),
        *(of_column("hotness", value) for value in (-1, 2, 2**31, 2**62)),
        *(of_column("num_rows", value) for value in (-1, 19, 2**62)),
        *(of_column("row_offset", value) for value in (-1, 15, 2**62)),
        of_call("table", None, _ALL),
        of_call("use", None, _SORTED),
        of_call("uses", -1, _SORTED),
        *(of_call("dtype", value, "forward update gradient") for value in (-1, 3)),
        *(of_call("sum_dtype", value, "gradient") for value in (-1, 3)),
        of_call("output", None, "forward count_rows gradient"),
        of_call("workspace", None, "update count_rows gradient"),
        of_call("scalars", None, "update"),
        of_call("optimizer", None, "update"),
        ("a slot is null", no_slot, "update"),
        ("optimizer.kind = 5", bad_kind, "update"),
        ("a gradient is null", null_gradient, "update gradient"),
    ]
