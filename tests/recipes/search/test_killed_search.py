"""Workers of a killed process."""

import signal
import subprocess
import sys

import psutil

PARENT = """
import multiprocessing, os, time
from concurrent.futures import ProcessPoolExecutor
from recipes.search.trial_worker import end_with_parent

context = multiprocessing.get_context("spawn")
pool = ProcessPoolExecutor(1, context, end_with_parent)
print(pool.submit(os.getpid).result(), flush=True)
time.sleep(100)
"""


def test_worker_of_a_killed_process(root):
    with subprocess.Popen([sys.executable, "-c", PARENT], cwd=root, stdout=-1) as parent:
        worker = psutil.Process(int(parent.stdout.readline()))
        assert worker.is_running()
        parent.send_signal(signal.SIGKILL)
    gone, _ = psutil.wait_procs([worker], timeout=30)
    assert gone == [worker]
