# `make help` lists the targets. Everything is installed into .venv, nothing outside this folder.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

# TensorFlow 2.15 has wheels for Python 3.9 to 3.11; the lock was made with 3.11.
PYTHON ?= $(shell command -v python3.11 || command -v python3 || echo python3)
# One word, so that paths with spaces never pass through make: every recipe runs in this folder.
PY := .venv/bin/python
# Replaces the TensorFlow line of the lock, e.g. on a GPU: make setup TENSORFLOW='tensorflow[and-cuda]==2.15.1'
TENSORFLOW ?=
# HOROVOD=no leaves Horovod out, which is built for some minutes, and with it several processes.
HOROVOD ?= yes
# ENGINES=no leaves Spark and NVTabular out: the Criteo preparation then has DuckDB alone.
ENGINES ?= yes
# How many tests run at a time: most of them keep one core busy, or wait.
TEST_WORKERS ?= 2
# CUDA=1 insists on the GPU kernels of the fused op, CUDA=0 leaves them out; auto: where nvcc is.
CUDA ?= auto
READY := .venv/installed .venv/op $(if $(filter no,$(HOROVOD)),,.venv/horovod) $(if $(filter no,$(ENGINES)),,.venv/engines)

# A Python that is named, and is not that of the environment, makes another environment.
VERSION_OF := -c 'import sys; print(sys.base_prefix, *sys.version_info[:3])'
ifneq ($(origin PYTHON),file)
ifneq ($(wildcard .venv/bin/python),)
ifneq ($(shell "$(PYTHON)" $(VERSION_OF) 2>&1),$(shell .venv/bin/python $(VERSION_OF) 2>&1))
.PHONY: .venv/installed
endif
endif
endif

.PHONY: help setup engines serve-setup cluster-setup op op-wheel demo test test-ranks test-serve test-cluster test-all docs lint format lock bench bench-op bench-ranks bench-checkpoints bench-loader bench-preparation bench-engines bench-records bench-sequence bench-sequence-preparation bench-ncf bench-interaction-preparation bench-serving bench-network clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-27s %s\n", $$1, $$2 }' Makefile

setup: $(READY) ## make .venv with every pinned package, the fused op, Horovod and the engines (the other targets do this by themselves)

.venv/installed: requirements/base.lock runtime/setup/setup.sh
	@bash runtime/setup/setup.sh "$(PYTHON)" "$(TENSORFLOW)"

# Without Horovod these targets print a warning; those that start several processes fail.
setup test: HOROVOD_MISSING := warn

.venv/horovod: requirements/horovod.txt runtime/setup/horovod.sh $(wildcard runtime/setup/horovod_patches/*) runtime/cluster/horovodrun.py .venv/installed
	@bash runtime/setup/horovod.sh $(HOROVOD_MISSING)

.venv/engines: requirements/engines.lock runtime/setup/engines.sh .venv/installed
	@bash runtime/setup/engines.sh
	@touch $@

engines: .venv/engines ## install Spark and NVTabular, the other engines of the Criteo preparation

.venv-serve/installed: requirements/serve.lock deployment/serve/setup.sh
	@bash deployment/serve/setup.sh "$(PYTHON)"
	@touch $@

serve-setup: .venv-serve/installed ## make .venv-serve with a Triton server, to serve models on this machine

OP := tensorflow-dot-based-interact
OP_SOURCES := $(wildcard $(addprefix $(OP)/,Makefile *.sh *.py *.toml */*.py */*/*.py */*/*/*.py */cc/*.h */cc/*/*.*))
# The requested kernels; `auto` keeps those that are installed.
OP_CHOICE := $(CUDA) $(CUDA_ARCHITECTURES)
ifneq ($(origin CUDA) $(origin CUDA_ARCHITECTURES),file undefined)
ifneq ($(OP_CHOICE),$(shell cat .venv/op 2>/dev/null))
.PHONY: .venv/op
endif
endif

.venv/op: $(OP_SOURCES) .venv/installed
	@bash $(OP)/install.sh "$(CUDA)"
	@echo "$(OP_CHOICE)" >$@

op: ## build and install the fused dot interaction (CUDA=1 or 0: with or without GPU kernels)
	@rm -f .venv/op
	@$(MAKE) --no-print-directory .venv/op

op-wheel: .venv/op ## show the wheel of the fused dot interaction
	@ls $(OP)/dist/*.whl 2>/dev/null || { $(MAKE) --no-print-directory op; ls $(OP)/dist/*.whl; }

demo: data/demo/feature_spec.yaml ## train and evaluate DLRM on generated clicks whose best reachable AUC is known
	@rm -rf runs/demo/checkpoint
	$(PY) dlrm.py --dataset_path data/demo --preset terabyte --batch_size 2048 --embedding_dim 16 --bottom_mlp_dims 64,16 \
	  --top_mlp_dims 128,64,1 --optimizer adam --learning_rate 0.01 --warmup_steps 50 --decay_start_step 400 \
	  --decay_steps 600 --print_freq 100 --evals_per_epoch 10 --seed 1 --run_dir runs/demo --save_checkpoint_path runs/demo/checkpoint
	$(PY) dlrm.py --mode eval --dataset_path data/demo --restore_checkpoint_path runs/demo/checkpoint \
	  --run_dir runs/demo-test

data/demo/feature_spec.yaml: | .venv/installed .venv/op
	$(PY) -m dataloading.synthetic --output data/demo --rows 2000000

test: $(READY) ## run the tests
	@$(PY) -m ruff check . && $(PY) -m ruff format --check . && $(PY) -m mypy
	@PYTEST_ADDOPTS="-n $(TEST_WORKERS) --dist worksteal $${PYTEST_ADDOPTS:-}" $(PY) -m pytest tests --ignore=tests/ranks --ignore=tests/serving --ignore=tests/cluster

test-ranks: .venv/op .venv/horovod ## run the tests on several processes: N ranks equal one rank, Gloo and MPI
	@PYTEST_ADDOPTS="-n $(TEST_WORKERS) --dist loadfile --no-loadscope-reorder $${PYTEST_ADDOPTS:-}" $(PY) -m pytest tests/ranks

test-serve: .venv/op .venv-serve/installed ## run the tests on a real Triton server: trained, deployed, asked
	@$(PY) -m pytest tests/serving

cluster-setup: ## install Debian's SLURM, OpenMPI and OpenSSH, which make test-cluster needs (as root)
	@bash tests/cluster/setup.sh

test-cluster: .venv/op .venv/horovod ## run the tests on a SLURM cluster in namespaces of this machine (as root, after make cluster-setup)
	@PYTEST_ADDOPTS="-n $(TEST_WORKERS) --dist loadfile $${PYTEST_ADDOPTS:-}" $(PY) -m pytest tests/cluster

test-all: $(READY) .venv-serve/installed ## run all tests, the long sweeps too
	@$(PY) -m pytest tests --long

.venv-docs/installed: requirements/docs.lock
	@"$(PYTHON)" -m venv .venv-docs
	@.venv-docs/bin/python -m pip install --disable-pip-version-check -qq -r requirements/docs.lock
	@touch $@

docs: .venv-docs/installed .venv/installed ## build the documentation as a site in build/site
	@$(PY) -m docs.flag_reference
	@NO_MKDOCS_2_WARNING=1 .venv-docs/bin/mkdocs build --strict --quiet

lint: .venv/installed ## check style and types
	@$(PY) -m ruff check . && $(PY) -m ruff format --check . && $(PY) -m mypy

format: .venv/installed ## rewrite the code in the house format
	@$(PY) -m ruff check --fix . && $(PY) -m ruff format .

bench: .venv/installed .venv/op .venv-torch/installed ## DLRM's training step compared with a plain PyTorch DLRM, interleaved
	@$(PY) -m benchmarks.dlrm_training

bench-op: .venv/op ## the fused dot interaction compared with plain TensorFlow, interleaved
	@$(PY) -m benchmarks.dot_interaction

bench-ranks: .venv/op .venv/horovod ## training on 2 ranks x 1 thread compared with 1 rank x 2 threads, interleaved
	@$(PY) -m benchmarks.rank_scaling

bench-checkpoints: .venv/op ## what a checkpoint every 100 steps costs of the training, interleaved
	@$(PY) -m benchmarks.checkpoint_cost

bench-loader: .venv/installed ## samples per second of the loader alone
	@$(PY) -m benchmarks.loader

bench-records: .venv/installed ## loading split TFRecords compared with split binaries, interleaved
	@$(PY) -m benchmarks.split_tfrecords

bench-preparation: .venv/installed ## rows per second and peak memory of the Criteo preparation
	@$(PY) -m benchmarks.preparation

bench-engines: .venv/engines ## the Criteo preparation by DuckDB, Spark and NVTabular: the same files, seconds and memory
	@$(PY) -m benchmarks.preparation_engines

bench-sequence: .venv/op .venv-torch/installed ## SIM's, DIEN's and DIN's training step compared with plain PyTorch, interleaved
	@$(PY) -m benchmarks.sequence_training

bench-sequence-preparation: .venv/engines ## SIM's preparation by DuckDB and NVTabular: the same files, seconds and memory
	@$(PY) -m benchmarks.sequence_preparation

bench-ncf: .venv/op .venv-torch/installed ## NeuMF's training step compared with plain PyTorch, interleaved
	@$(PY) -m benchmarks.ncf_training

bench-interaction-preparation: .venv/engines ## NCF's preparation compared with pandas: the same rows, seconds and memory
	@$(PY) -m benchmarks.interaction_preparation

bench-serving: .venv/op .venv-serve/installed ## a deployed DLRM compared with its plain SavedModel, both on a Triton server, interleaved
	@$(PY) -m benchmarks.serving

bench-network: .venv/op .venv/horovod ## what a plan puts on the network: computed for published models, measured on slowed links
	@$(PY) -m benchmarks.network

.venv-torch/installed: requirements/torch.txt | .venv/installed
	@echo "setup: installing PyTorch, the benchmark's peer, into .venv-torch"
	@rm -rf .venv-torch && "$(PYTHON)" -m venv .venv-torch
	@.venv-torch/bin/python -m pip install --disable-pip-version-check -qq -r requirements/torch.txt
	@touch $@

lock: ## resolve all requirements and write their locks
	@bash runtime/setup/lock.sh "$(PYTHON)"

clean: ## remove .venv and the caches (never data/ or runs/)
	@rm -rf .venv .venv-docs .venv-torch .venv-serve .pytest_cache .ruff_cache .mypy_cache .hypothesis
