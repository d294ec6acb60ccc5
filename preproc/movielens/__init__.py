"""Ratings, or any log of who touched what when -> training interactions and ranking questions, for
NCF: `python -m preproc.movielens --help`."""
