"""TensorFlow's variables: its log level and its oneDNN kernels."""

import os
import platform


def prepare_tensorflow() -> None:
    """Sets variables that TensorFlow reads when it is imported; those that are set stay.

    - TF_CPP_MIN_LOG_LEVEL is 2. TensorFlow 2.16 and later print some lines in spite of it, when
      they are imported, before their log has a level.
    - TF_ENABLE_ONEDNN_OPTS is 1 on x86. TensorFlow's default is 1 from AVX512-VNNI on only.
      With AVX2, too, its kernels are faster, and its allocator keeps the memory of large tensors,
      which malloc returns to the system at every step.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    if platform.machine() in ("x86_64", "AMD64"):
        os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")
