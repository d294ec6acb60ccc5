"""Logs of who did what when -> histories with negatives, for SIM, DIEN and DIN:
`python -m preproc.amazon_books --help`."""

USER_ERROR = 2  # exit status for a wrong flag or input and a full disk, as argparse's own
INTERRUPTED = 130  # exit status after Ctrl-C: 128 + SIGINT, as the shell counts
