"""Checks of data that reads well and may be wrong: leaks, joins, scales, drift."""
