"""Users with fewer events than a preparation requires, which it leaves out."""

from preproc.checks.report import NOTE, PASSED, WARNING, Finding, Kind

_LEAST_SHARE = 0.2  # of the events
_SMALL = 5  # a least number of events that keeps most users who can be evaluated
_KIND = Kind("short_users", "the model knows nothing of them, and metrics do not count them")


def short_users(flag: str, least: int, users: tuple[int, int], events: tuple[int, int]) -> Finding:
    """Returns whether a preparation leaves out much of a log.

    Args:
        flag: of the least number of events of a user, such as "--min_events".
        least: its value.
        users: number in the log, and of those that are kept.
        events: the same of the events.
    """
    (all_users, kept_users), (all_events, kept_events) = users, events
    left = all_events - kept_events
    if left < _LEAST_SHARE * all_events:
        return _KIND.finding(PASSED)
    seen = (
        f"{flag} {least} leaves out {left:,} of {all_events:,} events ({left / all_events:.1%}), "
        f"of {all_users - kept_users:,} of {all_users:,} users"
    )
    if least <= _SMALL:
        return _KIND.finding(NOTE, seen=seen)
    return _KIND.finding(WARNING, seen=seen, remedy=f"{flag} {_SMALL} keeps more of them")
