"""Sessions of onnxruntime on the CPU, which tell nobody of what they do."""

import os
from pathlib import Path


def open_session(file: str | Path, threads: int = 0):
    """An `onnxruntime.InferenceSession` on the CPU that says errors only.

    onnxruntime 1.31 gives each machine a number, in ~/.cache, and sends events of its use to its
    maker, where the environment does not forbid it before the library is loaded.

    Args:
      file: the ONNX model.
      threads: that work on a batch; 0: onnxruntime's choice.
    """
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"
    import onnxruntime  # takes 0.3 s, and half precision does without

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1  # one batch at a time; the graph has no branches to speak of
    # Threads that spin between requests take cores from other instances and the server itself.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.log_severity_level = 3  # errors
    return onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
