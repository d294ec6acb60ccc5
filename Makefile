# `make help` lists the targets. Everything is installed into .venv, nothing outside this folder.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

# The Python of .venv; by default the newest on the PATH that the lock is made for.
PYTHON ?=
# The packages of .venv; requirements/floor.lock has the oldest supported versions. By default those that it has now.
LOCK ?= $(or $(shell cat .venv/run 2>/dev/null),requirements/base.lock)
# Those of them that training and preparation import, which are installed first and suffice for `make demo`.
RUN_LOCK := $(patsubst requirements/base.lock,requirements/run.lock,$(LOCK))
# Any Python, for scripts that need no environment.
ANY_PYTHON := $(or $(shell command -v python3 || command -v "$(PYTHON)" || compgen -c | grep -xEm 1 'python3\.[0-9]+'),python3)
# One word, so that paths with spaces never pass through make: every recipe runs in this folder.
PY := .venv/bin/python
# Replaces the TensorFlow line of the lock, e.g. on a GPU: make setup TENSORFLOW='tensorflow[and-cuda]==2.21.0'
TENSORFLOW ?=
# HOROVOD=no leaves Horovod out, which is built for some minutes, and with it several processes.
HOROVOD ?= yes
# ENGINES=no leaves Spark and NVTabular out: the preparations then have DuckDB alone. ENGINES_PYTHON: the Python of their environment.
ENGINES ?= yes
ENGINES_PYTHON ?=
# How many tests run at a time: most of them keep one core busy, or wait.
TEST_WORKERS ?= 2
# CUDA=1 insists on the GPU kernels of the fused op, CUDA=0 leaves them out; auto: where nvcc and a GPU are.
CUDA ?= auto
READY := .venv/installed .venv/op $(if $(filter no,$(HOROVOD)),,.venv/horovod) $(if $(filter no,$(ENGINES)),,.venv-engines/installed)

# A Python or a lock that is named, and is not that of the environment, makes another environment.
VERSION_OF := -c 'import sys; print(sys.base_prefix, *sys.version_info[:3])'
ifneq ($(wildcard .venv/bin/python),)
ifneq ($(origin LOCK),file)
ifneq ($(LOCK),$(shell cat .venv/run 2>/dev/null))
.PHONY: .venv/run
endif
endif
ifneq ($(PYTHON),)
ifneq ($(shell "$(PYTHON)" $(VERSION_OF) 2>&1),$(shell .venv/bin/python $(VERSION_OF) 2>&1))
.PHONY: .venv/run
endif
endif
endif

.PHONY: help setup engines serve-setup cluster-setup browser-setup op op-wheel embeddings-wheel demo test test-ranks test-serve test-cluster test-reference test-platforms test-newest test-floor test-all docs lint format lock bench bench-op bench-preparation bench-sequence bench-sequence-preparation bench-ncf bench-embedding bench-mlperf bench-serving clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-27s %s\n", $$1, $$2 }' Makefile

setup: $(READY) ## make .venv with every pinned package, the fused op, Horovod and the engines (the other targets do this by themselves)
	@echo "setup: done; next: source .venv/bin/activate"

SET_UP := "$(ANY_PYTHON)" setup_environment.py $(if $(PYTHON),--python "$(PYTHON)") $(if $(TENSORFLOW),--tensorflow "$(TENSORFLOW)") --lock

# Kernels that need none of these packages are compiled during the installation; .venv/op prints errors of it.
.venv/run: $(RUN_LOCK) setup_environment.py
	@bash op_build/install.sh "$(CUDA)" --objects >/dev/null 2>&1 & $(SET_UP) "$(RUN_LOCK)"; wait
	@echo "$(LOCK)" >$@

# An environment that was complete for another content of the lock is replaced: it may have packages that the lock has no more.
.venv/installed: $(LOCK) .venv/run
	@[ "$(LOCK)" = "$(RUN_LOCK)" ] || { add=--add; if [ -e $@ ]; then add=; fi; $(SET_UP) "$(LOCK)" $$add; }
	@[ -e .venv/run ] || echo "$(LOCK)" >.venv/run
	@touch $@

# Without Horovod these targets print a warning; those that start several processes fail.
setup test: HOROVOD_MISSING := warn

.venv/horovod: requirements/horovod.txt runtime/setup/horovod.sh $(wildcard runtime/setup/horovod_patches/*) runtime/cluster/horovodrun.py .venv/installed
	@bash runtime/setup/horovod.sh $(HOROVOD_MISSING)

.venv-engines/installed: requirements/engines.lock runtime/setup/engines.sh | .venv/installed
	@ENGINES_PYTHON="$(ENGINES_PYTHON)" bash runtime/setup/engines.sh

engines: .venv-engines/installed ## make .venv-engines with Spark and NVTabular, the other engines of the preparations

.venv-serve/installed: requirements/serve.lock deployment/serve/setup.sh
	@bash deployment/serve/setup.sh "$(or $(PYTHON),$(shell command -v python3.11),python3)"
	@touch $@

serve-setup: .venv-serve/installed ## make .venv-serve with a Triton server, to serve models on this machine

OPS := tensorflow-dot-based-interact distributed-embeddings/kernels dataloading/kernels
OP_SOURCES := $(wildcard op_build/* $(foreach op,$(OPS),$(addprefix $(op)/,Makefile *.py *.toml */*.py */*/*.py */*/*/*.py */cc/*.h */cc/*/*.*)))
# The requested kernels; `auto` keeps those that are installed.
OP_CHOICE := $(CUDA) $(CUDA_ARCHITECTURES)
ifneq ($(origin CUDA) $(origin CUDA_ARCHITECTURES),file undefined)
ifneq ($(OP_CHOICE),$(shell cat .venv/op 2>/dev/null))
.PHONY: .venv/op
endif
endif

# Without a compiler there is no stamp: the next make looks for one again.
.venv/op: $(OP_SOURCES) .venv/run
	@bash op_build/install.sh "$(CUDA)" "$@"
	@[ ! -e $@ ] || echo "$(OP_CHOICE)" >$@

op: ## build and install the fused dot interaction and embedding lookup (CUDA=1 or 0: with or without GPU kernels)
	@rm -f .venv/op
	@$(MAKE) --no-print-directory .venv/op

op-wheel: .venv/op ## show the wheels of the fused ops
	@ls $(addsuffix /dist/*.whl,$(OPS)) 2>/dev/null || { $(MAKE) --no-print-directory op; ls $(addsuffix /dist/*.whl,$(OPS)); }

EMBEDDINGS := distributed-embeddings

embeddings-wheel: .venv/installed ## build the wheel of the package distributed-embeddings
	@$(MAKE) --no-print-directory -C $(EMBEDDINGS) pip_pkg PYTHON="$(CURDIR)/.venv/bin/python"

demo: ## train and evaluate DLRM on generated clicks whose best reachable AUC is known
	@$(MAKE) --no-print-directory -j2 .venv/op data/demo/feature_spec.yaml
	@rm -rf runs/demo/checkpoint
	$(PY) dlrm.py --flagfile recipes/presets/generated_dlrm.flags --dataset_path data/demo --print_freq 100 --evals_per_epoch 10 \
	  --seed 1 --run_dir runs/demo --save_checkpoint_path runs/demo/checkpoint
	$(PY) dlrm.py --mode eval --dataset_path data/demo --restore_checkpoint_path runs/demo/checkpoint \
	  --run_dir runs/demo-test

data/demo/feature_spec.yaml: | .venv/run
	$(PY) -m dataloading.synthetic --output data/demo --rows 2000000

# Files that name the marker or the list of engines; others may import TensorFlow, which that environment lacks.
ENGINE_TESTS = $(if $(filter no,$(ENGINES)),true,.venv-engines/bin/python -m pytest -m engines $$(grep -rlwE --include='test_*.py' 'ENGINES|mark\.engines' tests/preproc tests/dataloading))

test: $(READY) ## run the tests
	@$(PY) -m ruff check . && $(PY) -m ruff format --check . && $(PY) -m mypy
	@PYTEST_ADDOPTS="-n $(TEST_WORKERS) --dist worksteal $${PYTEST_ADDOPTS:-}" $(ENGINE_TESTS)
	@PYTEST_ADDOPTS="-n $(TEST_WORKERS) --dist worksteal -m 'not engines' $${PYTEST_ADDOPTS:-}" $(PY) -m pytest tests distributed-embeddings/tests --ignore=tests/ranks --ignore=tests/serving --ignore=tests/cluster

test-ranks: .venv/op .venv/horovod ## run the tests on several processes: N ranks equal one rank, Gloo and MPI
	@PYTEST_ADDOPTS="-n $(TEST_WORKERS) --dist loadfile --no-loadscope-reorder $${PYTEST_ADDOPTS:-}" $(PY) -m pytest tests/ranks

test-serve: .venv/op .venv-serve/installed ## run the tests on a real Triton server: trained, deployed, asked
	@PYTEST_ADDOPTS="-n $(TEST_WORKERS) --dist loadfile $${PYTEST_ADDOPTS:-}" $(PY) -m pytest tests/serving

cluster-setup: ## install Debian's SLURM, OpenMPI and OpenSSH, which make test-cluster needs (as root)
	@bash tests/cluster/setup.sh

browser-setup: ## install Chromium and nginx, which tests of the page of runs and of a proxy need (Debian, as root)
	@{ command -v chromium && command -v nginx; } >/dev/null || \
	  { apt-get update && RUNLEVEL=1 apt-get install --yes --no-install-recommends chromium nginx-light; } >/dev/null 2>&1 || \
	  echo "browser-setup: Chromium or nginx could not be installed; their tests are skipped"

test-cluster: .venv/op .venv/horovod ## run the tests on a SLURM cluster in namespaces of this machine (as root, after make cluster-setup)
	@PYTEST_ADDOPTS="-n $(TEST_WORKERS) --dist loadfile $${PYTEST_ADDOPTS:-}" $(PY) -m pytest tests/cluster

test-reference: .venv/op .venv-torch/installed ## compare logits and losses of DCNv2 and DLRM with the models of TorchRec, on a CPU
	@$(PY) -m pytest tests/reference

test-platforms: .venv/op .venv/horovod ## check set-up, trainings and checkpoints with every other Python of this machine and with the oldest supported versions
	@$(PY) -m tests.platforms

test-newest: .venv/op ## test-platforms with the newest other Python alone, on one rank
	@$(PY) -m tests.platforms --only newest --no_ranks

test-floor: .venv/op ## run the tests with the oldest supported versions: Python 3.10, TensorFlow 2.15.1, NumPy 1
	@$(PY) -m tests.platforms --only floor --tests

test-all: $(READY) .venv-serve/installed ## run all tests, the long sweeps too
	@$(ENGINE_TESTS) --long
	@$(PY) -m pytest tests distributed-embeddings/tests --long -m 'not engines'

.venv-docs/installed: requirements/docs.lock | .venv/installed
	@.venv/bin/python -m venv .venv-docs
	@.venv-docs/bin/python -m pip install --disable-pip-version-check -qq -r requirements/docs.lock
	@touch $@

docs: .venv-docs/installed .venv/installed ## build the documentation as a site in build/site
	@$(PY) -m docs.flag_reference
	@NO_MKDOCS_2_WARNING=1 .venv-docs/bin/mkdocs build --strict 2>&1 | sed '/^INFO/d'

lint: .venv/installed ## check style and types
	@$(PY) -m ruff check . && $(PY) -m ruff format --check . && $(PY) -m mypy

format: .venv/installed ## rewrite the code in the house format
	@$(PY) -m ruff check --fix . && $(PY) -m ruff format .

bench: .venv/installed .venv/op .venv-torch/installed ## DLRM's training step compared with a plain PyTorch DLRM, interleaved
	@$(PY) -m benchmarks.dlrm_training

bench-op: .venv/op ## the fused dot interaction compared with plain TensorFlow, interleaved
	@$(PY) -m benchmarks.dot_interaction

bench-preparation: .venv/installed ## rows per second and peak memory of the Criteo preparation
	@$(PY) -m benchmarks.preparation

bench-sequence: .venv/op .venv-torch/installed ## SIM's, DIEN's and DIN's training step compared with plain PyTorch, interleaved
	@$(PY) -m benchmarks.sequence_training

bench-sequence-preparation: .venv/op .venv-engines/installed ## SIM's preparation by DuckDB and NVTabular: seconds and memory
	@$(PY) -m benchmarks.preparation --data reviews

bench-ncf: .venv/op .venv-torch/installed ## NeuMF's training step compared with plain PyTorch, interleaved
	@$(PY) -m benchmarks.ncf_training

bench-embedding: .venv/op .venv-torch/installed ## embedding bags compared with fbgemm and PyTorch, interleaved
	@$(PY) -m benchmarks.embedding_bag

bench-mlperf: .venv/op .venv-torch/installed ## DLRM-DCNv2's training step compared with TorchRec's, fbgemm's tables and Adagrad, interleaved
	@$(PY) -m benchmarks.mlperf_training

bench-serving: .venv/op .venv-serve/installed ## a deployed DLRM compared with its plain SavedModel, both on a Triton server, interleaved
	@$(PY) -m benchmarks.serving

.venv-torch/installed: requirements/torch.txt requirements/torchrec.txt | .venv/installed
	@echo "setup: installing PyTorch and TorchRec, for comparisons, into .venv-torch"
	@rm -rf .venv-torch && .venv/bin/python -m venv .venv-torch
	@.venv-torch/bin/python -m pip install --disable-pip-version-check -qq -r requirements/torch.txt
	@.venv-torch/bin/python -m pip install --disable-pip-version-check -qq --no-deps -r requirements/torchrec.txt
	@touch $@

lock: ## resolve all requirements and write their locks
	@bash runtime/setup/lock.sh "$(ANY_PYTHON)"

clean: ## remove .venv, the other environments and the caches (never data/ or runs/)
	@rm -rf .venv .venv-docs .venv-torch .venv-serve .venv-engines .pytest_cache .ruff_cache .mypy_cache .hypothesis
