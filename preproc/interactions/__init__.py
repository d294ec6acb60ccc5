"""Logs of who touched what when -> training interactions and candidate lists, for NCF: `python -m
preproc.interactions --help`."""
