"""`horovodrun`, without what it does first: it starts an interpreter that imports TensorFlow, only
to see that Horovod can use Gloo. That is seconds in each of many starts.

    python tests/ranks/horovodrun.py --gloo -np N COMMAND

When one rank ends with an error it ends the others by SIGTERM, and by SIGKILL not 5 seconds later,
but a minute: on a slow machine they need longer to report why they end.
"""

from horovod.runner.common.util import safe_shell_exec

# In horovodrun's own processes, too, each of which begins by importing this file.
safe_shell_exec.GRACEFUL_TERMINATION_TIME_S = 60


def main() -> None:
    # Here, because it takes long.
    from horovod.runner import launch

    launch.gloo_built = lambda verbose: True
    launch.run_commandline()


if __name__ == "__main__":
    main()
