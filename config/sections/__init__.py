"""Sections of the configuration: each field is the command-line flag of the same name."""
