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

.PHONY: help setup demo test test-all lint format lock bench bench-loader bench-preparation clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-18s %s\n", $$1, $$2 }' Makefile

setup: .venv/installed ## make .venv with every pinned package (the other targets do this by themselves)

.venv/installed: requirements.lock runtime/setup.sh
	@bash runtime/setup.sh "$(PYTHON)" "$(TENSORFLOW)"

demo: .venv/installed ## train and evaluate DLRM on generated clicks whose best reachable AUC is known
	@$(PY) dlrm.py --demo

test: .venv/installed ## run the tests
	@$(PY) -m ruff check . && $(PY) -m ruff format --check .
	@$(PY) -m pytest tests

test-all: .venv/installed ## run the tests, the long sweeps too
	@$(PY) -m pytest tests --long

lint: .venv/installed ## check style
	@$(PY) -m ruff check . && $(PY) -m ruff format --check .

format: .venv/installed ## rewrite the code in the house format
	@$(PY) -m ruff check --fix . && $(PY) -m ruff format .

lock: ## resolve requirements*.txt anew and write requirements.lock
	@bash runtime/lock.sh "$(PYTHON)"

clean: ## remove .venv and the caches (never data/ or runs/)
	@rm -rf .venv .venv-torch .pytest_cache .ruff_cache .hypothesis
