"""Content of a data set's encoder that recipes read: original ids, bins of numbers."""
