"""Criteo click logs -> split binaries and a feature spec: `python -m preproc.criteo --help`."""
