"""The peer: TorchRec's DLRM_DCN as in MLPerf's reference. A worker of `mlperf_training`.

Tables of fbgemm with exact Adagrad, which the backward pass applies; `torch.optim.Adagrad` for the
dense weights, `torch.autocast`.
"""

from importlib import metadata

import torch

from benchmarks.harness.torch_training import load_weights
from benchmarks.harness.worker import parser_of, serve_training
from benchmarks.harness.workload_files import load
from benchmarks.mlperf_training.torchrec_model import TorchRecTraining
from benchmarks.mlperf_training.workload import Rows, Sizes


def main() -> None:
    args = parser_of(__doc__).parse_args()
    torch.set_num_threads(args.threads)
    rows, sizes = load(args.folder, Rows, Sizes)

    def start(**options) -> TorchRecTraining:
        weights = load_weights(args.folder / "weights.npz")
        return TorchRecTraining(rows, sizes, weights, is_fused=True, **options)

    packages = ("torchrec", "torch", "fbgemm-gpu-cpu")
    version = ", ".join(f"{package} {metadata.version(package)}" for package in packages)
    serve_training(version, start, args.address)


if __name__ == "__main__":
    main()
