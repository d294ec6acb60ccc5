"""Encoder of raw columns: the only place in which values become ids and numbers.

It needs PyArrow, NumPy and xxhash, and runs in preparations, in predictions and in servers.
"""
