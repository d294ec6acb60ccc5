"""CPU sessions of onnxruntime with telemetry disabled."""

import os
from pathlib import Path


def open_session(file: str | Path, threads: int = 0):
    """Opens an `onnxruntime.InferenceSession` on the CPU that logs errors only.

    onnxruntime 1.31 identifies the machine by a number in ~/.cache and sends usage events to its
    vendor, unless an environment variable forbids it before the library is loaded.

    Args:
        file: ONNX model.
        threads: threads per batch; 0: onnxruntime's choice.
    """
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"
    import onnxruntime  # takes 0.3 s, and half precision does not need it

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1  # one batch at a time; the graph has hardly any branches
    # Threads that spin between requests take cores from other instances and the server itself.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.log_severity_level = 3  # errors
    return onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
