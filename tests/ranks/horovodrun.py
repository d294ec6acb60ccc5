"""`horovodrun`, without what it does first: it starts an interpreter that imports TensorFlow, only
to see that Horovod can use Gloo. That is seconds in each of many starts.

    python tests/ranks/horovodrun.py --gloo -np N COMMAND
"""


def main() -> None:
    # Here, because horovodrun's own processes begin by importing this file.
    from horovod.runner import launch

    launch.gloo_built = lambda verbose: True
    launch.run_commandline()


if __name__ == "__main__":
    main()
