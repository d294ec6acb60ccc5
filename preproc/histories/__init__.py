"""Logs of who did what when -> histories with negatives, for SIM, DIEN and DIN:
`python -m preproc.histories --help`."""
