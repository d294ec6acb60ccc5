"""Which ranks do not come, from where all of them are, and how to say that."""

from collections.abc import Mapping, Sequence

from runtime.cluster.failure.stack_sample import Whereabouts

# Of more missing ranks the first ones are described.
_MOST_DESCRIBED = 8


def missing(told: Mapping[int, Whereabouts], ranks: Sequence[int]) -> list[int]:
    """The ranks that others seem to wait for; [] where that cannot be seen.

    Those that say nothing; else those that neither compute nor wait, if others do; else those that
    are behind in their steps. It is inferred: what waits within TensorFlow looks as what computes.

    Args:
      told: what the ranks said, by rank.
      ranks: those to judge, who could be asked.
    """
    waiting = [rank for rank, here in told.items() if here.waits]
    if not waiting:
        return []
    if silent := [rank for rank in ranks if rank not in told]:
        return silent
    if elsewhere := [rank for rank, here in told.items() if not here.waits]:
        return sorted(elsewhere)
    steps = [here.step or 0 for here in told.values()]
    return sorted(rank for rank, here in told.items() if (here.step or 0) < max(steps))


def unreached(ranks: Sequence[int], host: str, port: int) -> str:
    """A line on ranks that have not called rank 0 after the start."""
    return (
        f"note: the roll call does not reach {names(ranks)}: where one of them does not come, "
        f"nobody can say where it is (does a firewall close port {port} of {host}?)"
    )


def early(ranks: Sequence[int], about: Sequence[str], waited_s: float, timeout_s: float) -> str:
    """A line on ranks that others wait for, long before the time-out."""
    end = "the training waits for ever"
    if timeout_s:
        end = f"the training ends with an error after {timeout_s:g} s (--rank_timeout_s)"
    return f"note: still waiting after {waited_s:.0f} s for {names(ranks)}: {listed(about)}; {end}"


def sentence(
    stuck: Sequence[int], ended: Sequence[int], about: Sequence[str], timeout_s: float
) -> str:
    """Who is to blame for a collective that failed, the arguments as in `roll_call.Absent`."""
    if ended:
        return f"{names(ended)} ended{f' ({listed(about)})' if about else ''}"
    if not stuck:
        return "another process ended, or did not come to a collective"
    waited = f" within {timeout_s:g} seconds (--rank_timeout_s)" if timeout_s else ""
    known = f": {listed(about)}" if about else ""
    return f"{names(stuck)} did not come to a collective{waited}{known}"


def where(here: Whereabouts, other_steps: Sequence[int | None]) -> str:
    """ "at step 1210 (the others: 1211), in dataloading/binary_reader.py:88 read_block"."""
    if here.step is None:
        return f"in {here.place}"
    others = sorted({step for step in other_steps if step is not None} - {here.step})
    if len(others) > 1:
        others = [f"{others[0]} to {others[-1]}"]
    compared = f" (the others: {others[0]})" if others else ""
    return f"at step {here.step}{compared}, in {here.place}"


def silent(machine_answers: bool | None, waited_s: float) -> str:
    """On a rank that did not say where it is; None: nobody knows whether its machine is there."""
    if machine_answers is None:
        return "no answer: its process is frozen, or its machine is gone"
    if machine_answers:
        return (
            f"no answer within {waited_s:g} s from its process, but from its machine: it is frozen "
            "(stopped, or in a call that keeps Python's lock)"
        )
    return f"no answer within {waited_s:g} s: its machine is gone, or the network to it"


def names(ranks: Sequence[int]) -> str:
    """ "rank 3", or "ranks 0, 2, 5"."""
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}"


def listed(about: Sequence[str]) -> str:
    more = len(about) - _MOST_DESCRIBED
    shown = "; ".join(about[:_MOST_DESCRIBED])
    return f"{shown}; and {more} more" if more > 0 else shown
