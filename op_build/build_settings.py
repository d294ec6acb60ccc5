"""Prints, as shell assignments, what the op's build takes from TensorFlow and from CUDA.

python build_settings.py "80 90"    # the CUDA architectures; empty without the CUDA part
"""

import json
import os
import shlex
import sys

# With oneDNN, TensorFlow 2.21 writes to stderr when it is imported.
os.environ |= {"TF_CPP_MIN_LOG_LEVEL": "2", "TF_ENABLE_ONEDNN_OPTS": "0"}
import tensorflow as tf

include, *flags = tf.sysconfig.get_compile_flags()
where, name = tf.sysconfig.get_link_flags()
settings = {
    "include": include.removeprefix("-I"),
    # The standard is the Makefile's, everything else decides about the binary interface.
    "flags": " ".join(flag for flag in flags if "std=" not in flag),
    "library": f"{where.removeprefix('-L')}/{name.removeprefix('-l:')}",
    "json": json.dumps({"tensorflow": tf.__version__, "cuda": sys.argv[1].split(), "bytes": 0}),
}
for key, value in settings.items():
    print(f"{key}={shlex.quote(value)}")
