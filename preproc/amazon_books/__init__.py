"""Amazon reviews: `preproc.histories` with their format, generated files, and TFRecords."""
