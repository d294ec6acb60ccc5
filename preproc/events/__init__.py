"""Logs of who did what when, as Ibis expressions: types of columns, times, ids."""
