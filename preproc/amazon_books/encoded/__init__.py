"""Samples written as Parquet without a value of a history ever being an element of an array."""
