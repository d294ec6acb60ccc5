"""Starts `dlrm.py` of the checkout it runs in, and prints when parts of the run end.

python marked_run.py FLAGS

The last line of stderr is JSON: the time of each end, in seconds since the epoch, by the name of
the part, the seconds of each evaluation, and the version of TensorFlow.
"""

import functools
import json
import sys
import time
from typing import Any

started = time.time()
sys.path[:0] = [".", "distributed-embeddings"]


def main() -> int:
    """Runs the recipe; returns the exit code."""
    import dlrm
    from recipes import execution
    from runtime.cluster.failure import stack_sample
    from training.loop import TrainingLoop

    ends, evaluations = {"Python": started, "imports of the toolkit": time.time()}, []

    def mark_end(owner: Any, name: str, part: str) -> None:
        function = getattr(owner, name)

        @functools.wraps(function)
        def marked(*args, **kwargs):
            result = function(*args, **kwargs)
            ends.setdefault(part, time.time())
            if name == "_measure":
                evaluations.append(result[1])
            return result

        setattr(owner, name, marked)

    mark_end(execution, "check_paths", "flags, feature spec")
    mark_end(execution, "import_tensorflow", "import of TensorFlow")
    mark_end(execution, "_build_recipe", "data, model, optimizers")
    mark_end(TrainingLoop, "__init__", "log, training loop")
    mark_end(stack_sample, "record_step", "first step")
    mark_end(TrainingLoop, "_measure", "steps to the first evaluation, and it")
    mark_end(execution, "finish", "other steps and evaluations, plots")
    code = dlrm.main(["dlrm.py", *sys.argv[1:]])
    version = sys.modules["tensorflow"].__version__
    marks = {"ends": ends, "evaluations": evaluations, "tensorflow": version}
    print(json.dumps(marks), file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
