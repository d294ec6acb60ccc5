"""What travels into a model repository: requests checked, rows looked up, scores computed.

Needs NumPy and onnxruntime (or OpenVINO) only: no TensorFlow, and nothing else of the toolkit.
"""
