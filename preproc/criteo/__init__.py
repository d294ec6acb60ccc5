"""Criteo click logs -> split binaries and a feature spec: `python -m preproc.criteo --help`."""

USER_ERROR = 2  # exit status for a wrong flag or input and a full disk, as argparse's own
INTERRUPTED = 130  # exit status after Ctrl-C: 128 + SIGINT, as the shell counts
