"""Module paths of the original library; the code is elsewhere in this package."""
