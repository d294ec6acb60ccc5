# syntax=docker/dockerfile:1.7
# The toolkit for NVIDIA GPUs, on NVIDIA's TensorFlow container; docs/how_to/containers.md.
#
# TensorFlow 2.15, Horovod (with NCCL and MPI), NumPy, CUDA and Python 3.10 are the container's own and stay as they are: .venv
# lies on top of them and holds only what the container lacks.
#
# Ubuntu's packages have no versions here: a release keeps only the newest of each, and they are all from the container's.
# hadolint global ignore=DL3008
# WORKDIR comes from the first stage.
# hadolint global ignore=DL3045
ARG TENSORFLOW_IMAGE=nvcr.io/nvidia/tensorflow:24.05-tf2-py3

FROM ${TENSORFLOW_IMAGE} AS container
SHELL ["/bin/bash", "-euo", "pipefail", "-c"]
WORKDIR /workspace/recommenders

FROM container AS packages
COPY requirements/ngc.lock requirements/
COPY runtime/setup/ngc_packages.sh runtime/setup/
COPY distributed-embeddings distributed-embeddings
RUN --mount=type=cache,target=/root/.cache bash runtime/setup/ngc_packages.sh python3

# The fused operator for every architecture that the container's nvcc knows of those in its Makefile; no GPU is needed.
FROM packages AS native
ARG CUDA_ARCHITECTURES="70 75 80 86 89 90 100 120"
COPY op_build op_build
COPY tensorflow-dot-based-interact tensorflow-dot-based-interact
COPY dataloading/kernels dataloading/kernels
RUN CUDA_ARCHITECTURES="${CUDA_ARCHITECTURES}" XDG_CACHE_HOME=/wheels bash op_build/install.sh 1

FROM container
LABEL org.opencontainers.image.title="Recommenders at scale, NVIDIA GPUs" \
      org.opencontainers.image.description="DLRM, DCNv2, SIM, DIEN, DIN and NCF in NVIDIA's TensorFlow 2.15 container"
# For jobs that place their memory.
RUN apt-get update \
 && apt-get install --yes --no-install-recommends numactl \
 && rm -rf /var/lib/apt/lists/*
# The code belongs to root. Runs write into /data, or into these two folders.
# The links are the working folders of NVIDIA's images, for commands with absolute paths.
RUN useradd --uid 1000 --create-home recommender \
 && install --directory --owner=recommender /data data runs \
 && for folder in /dlrm /sim /workspace/dlrm /workspace/sim /workspace/ncf; do ln -s "/workspace/recommenders/original/${folder##*/}" "${folder}"; done
COPY --from=packages /workspace/recommenders/.venv .venv
# These wheels and nothing else, also where the container has a package of theirs: pip would leave it, and NVIDIA's containers
# name versions in PIP_CONSTRAINT.
RUN --mount=type=bind,from=native,source=/wheels,target=/wheels/op \
    PIP_CONSTRAINT='' \
    find /wheels -name '*.whl' \
      -exec .venv/bin/python -m pip install --no-cache-dir --no-index --no-deps --force-reinstall {} +
# Horovod's asynchronous completion (its pull request 2963): TensorFlow continues when a collective of NCCL is queued on the GPU,
# not when it is done; operations that need the result wait on the GPU. The original recipe's image sets it. Its effects on speed
# and on the detection of lost ranks were not measured here.
ENV PATH=/workspace/recommenders/.venv/bin:${PATH} \
    HOROVOD_ENABLE_ASYNC_COMPLETION=1 \
    PYTHONUNBUFFERED=1 \
    TF_CPP_MIN_LOG_LEVEL=1
COPY . .
# no: also with a container whose Horovod has no Gloo.
ARG GLOO=yes
# `make` finds that nothing is left to install: the stamps become newer than what they depend on, as files of a fresh clone may
# be newer than a layer of the cache. Then, to fail here rather than in a job: the container's TensorFlow and Horovod, and our
# operator, can be loaded, and that Horovod has all of its parts.
RUN touch .venv/run \
 && touch .venv/installed \
 && touch .venv/horovod .venv/op \
 && python dlrm.py --help >/dev/null \
 && python -c 'import sys, tensorflow_dot_based_interact, horovod.tensorflow as hvd; \
      assert hvd.mpi_built(), "Horovod is without MPI: no mpirun, and no srun, thus no slurm_multinode.sh"; \
      assert hvd.nccl_built(), "Horovod is without NCCL: data between GPUs would go through the memory of the CPUs"; \
      assert hvd.gloo_built() or sys.argv[1] == "no", \
        "Horovod is without Gloo: no horovodrun --gloo; build with --build-arg GLOO=no if you do not need it"' \
      "${GLOO}"
USER 1000
CMD ["python", "dlrm.py", "--help"]
