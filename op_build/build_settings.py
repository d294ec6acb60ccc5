"""Prints, as shell assignments, what the op's build takes from TensorFlow."""

import os
import shlex

# With oneDNN, TensorFlow 2.21 writes to stderr when it is imported.
os.environ |= {"TF_CPP_MIN_LOG_LEVEL": "2", "TF_ENABLE_ONEDNN_OPTS": "0"}
import tensorflow as tf

include, *flags = tf.sysconfig.get_compile_flags()
where, name = tf.sysconfig.get_link_flags()
settings = {
    "version": tf.__version__,
    # The standard is the Makefile's, everything else decides about the binary interface.
    "flags": " ".join(flag for flag in flags if "std=" not in flag),
    "include": include.removeprefix("-I"),
    "library": f"{where.removeprefix('-L')}/{name.removeprefix('-l:')}",
}
for key, value in settings.items():
    print(f"{key}={shlex.quote(value)}")
