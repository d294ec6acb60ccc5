"""Code that is copied into a model repository: checks requests, looks rows up, computes scores.

Needs NumPy and onnxruntime (or OpenVINO) only, and PyArrow and xxhash for raw rows: no TensorFlow,
and nothing else of the toolkit than `preproc.encoding` and `runtime.hardware.available_memory`.
"""
