"""MovieLens: `preproc.interactions` with the columns of its files, and generated files."""
