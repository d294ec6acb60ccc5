"""Runs `dlrm.py` with the given flags and prints this rank's peak resident memory in MiB."""

import json
import os
import resource
import sys

import dlrm

if __name__ == "__main__":
    code = dlrm.main(["dlrm.py", *sys.argv[1:]])
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    rank = os.environ.get("HOROVOD_RANK") or os.environ.get("OMPI_COMM_WORLD_RANK") or "0"
    print(json.dumps({"rank": int(rank), "exit_code": code, "peak_mib": round(peak_mib)}))
    sys.exit(code)
