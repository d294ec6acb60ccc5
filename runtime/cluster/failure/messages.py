"""Error messages about ranks that failed or stalled a collective."""

from collections.abc import Sequence

from runtime.cluster.failure.stack_sample import StackSample

_MAX_DESCRIBED = 8


def describe_absent(
    stalled: Sequence[int], ended: Sequence[int], details: Sequence[str], timeout_s: float
) -> str:
    """Returns one sentence on the ranks at fault; arguments as in `client.AbsentRanks`."""
    if ended:
        return f"{rank_names(ended)} ended{f' ({_join(details)})' if details else ''}"
    if not stalled:
        return "another process ended, or did not come to a collective"
    waited = f" within {timeout_s:g} seconds (--rank_timeout_s)" if timeout_s else ""
    known = f": {_join(details)}" if details else ""
    return f"{rank_names(stalled)} did not come to a collective{waited}{known}"


def describe_sample(sample: StackSample, other_steps: Sequence[int | None]) -> str:
    """Returns "at step 1210 (the others: 1211), in dataloading/binary_reader.py:88 read_block"."""
    if sample.step is None:
        return f"in {sample.location}"
    others = sorted({step for step in other_steps if step is not None} - {sample.step})
    compared = ""
    if others:
        steps = str(others[0]) if len(others) == 1 else f"{others[0]} to {others[-1]}"
        compared = f" (the others: {steps})"
    return f"at step {sample.step}{compared}, in {sample.location}"


def rank_names(ranks: Sequence[int]) -> str:
    """Returns "rank 3", or "ranks 0, 2, 5"."""
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}"


def _join(details: Sequence[str]) -> str:
    more = len(details) - _MAX_DESCRIBED
    shown = "; ".join(details[:_MAX_DESCRIBED])
    return f"{shown}; and {more} more" if more > 0 else shown
