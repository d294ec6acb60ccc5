# Builds the library of TensorFlow ops, or of functions; `make op` of the repository runs it and installs the wheel.
# A Makefile that includes it sets NAME (of the sources and of the library), PACKAGE, LIBRARY_FOLDER
# and TESTS.
#
#   make [PYTHON=...] [CUDA=auto|0|1] [CUDA_ARCHITECTURES="80 90"] [NVCC=...] [CXX=...]
#   make CUDA=0 SANITIZE=address,undefined   # to be loaded with libasan and libubsan in LD_PRELOAD
#
# The CPU part needs g++ alone. The CUDA part is built where nvcc and a GPU are found (CUDA=auto),
# always (CUDA=1) or never (CUDA=0), by default for each of the architectures below that nvcc knows.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := library
.DELETE_ON_ERROR:

PYTHON ?= python3
CXX ?= g++
NVCC ?= $(shell command -v nvcc)
CUDA ?= auto
GPU_DEVICES ?= $(wildcard /dev/nvidia[0-9]* /dev/dxg)
# A file with what build_settings.py prints; without one it is called.
TENSORFLOW_SETTINGS ?=
# Volta, Turing, Ampere (A100, A10), Ada, Hopper, Blackwell (B200, RTX).
CUDA_ARCHITECTURES ?= 70 75 80 86 89 90 100 120

OP_BUILD := $(dir $(lastword $(MAKEFILE_LIST)))
CC := $(PACKAGE)/cc
LIBRARY := $(LIBRARY_FOLDER)/_$(NAME)_ops.so
BUILD := $(LIBRARY:.so=.json)
HEADERS := $(wildcard $(OP_BUILD)*.h $(CC)/*.h $(CC)/*/*.h $(CC)/*/*.inc $(CC)/*/*.cuh)

ifeq ($(filter auto 0 1,$(CUDA)),)
$(error CUDA must be auto, 0 or 1, got $(CUDA))
endif
ifeq ($(CUDA)$(NVCC),1)
$(error CUDA=1 asks for the CUDA part, but no nvcc is on the PATH: install the CUDA toolkit or give NVCC=/path/to/nvcc)
endif
WITH_CUDA := $(if $(wildcard $(CC)/cuda/launch.cu),$(if $(filter 1,$(CUDA))$(and $(filter auto,$(CUDA)),$(GPU_DEVICES)),$(NVCC)))
ifneq ($(WITH_CUDA),)
KNOWN := $(subst compute_,,$(shell "$(NVCC)" --list-gpu-arch))
ARCHITECTURES := $(filter $(KNOWN),$(CUDA_ARCHITECTURES))
ifeq ($(ARCHITECTURES),)
$(error none of CUDA_ARCHITECTURES=$(CUDA_ARCHITECTURES) is known to $(NVCC), which has $(KNOWN))
endif
endif

SANITIZE ?=
CXXFLAGS := -O3 -DNDEBUG -std=c++17 -fPIC -Wall -Wextra -Wno-psabi -fno-math-errno \
  $(if $(SANITIZE),-O1 -g -UNDEBUG -fsanitize=$(SANITIZE) -fno-sanitize=vptr)
# TensorFlow's headers are not ours to warn about: -isystem. What it deprecates is what its older versions have.
# Under three sanitizers GCC 12 rejects comparisons with null in constant expressions, which Abseil's headers contain.
NO_NULL_CHECKS := -fno-sanitize=null,nonnull-attribute,returns-nonnull-attribute
OP_FLAGS = $(CXXFLAGS) $(if $(SANITIZE),$(NO_NULL_CHECKS)) -Wno-deprecated-declarations -isystem "$$include" $$flags $(if $(WITH_CUDA),-DWITH_CUDA)
NVCC_FLAGS := -O3 -DNDEBUG -std=c++17 -Xcompiler -fPIC,-Wall --threads 2 -ccbin "$(lastword $(CXX))" \
  $(foreach a,$(ARCHITECTURES),-gencode arch=compute_$(a),code=sm_$(a)) \
  -gencode arch=compute_$(lastword $(ARCHITECTURES)),code=compute_$(lastword $(ARCHITECTURES))

.PHONY: library objects wheel pkg test clean force
library: $(LIBRARY) $(BUILD)

# All but the sources that an object depends on. `settings` is what needs TensorFlow; a library without
# operations of TensorFlow is loaded by ctypes and knows nothing of TensorFlow.
OPERATIONS := $(if $(wildcard $(CC)/ops),build/operations.o)
WRITE = @mkdir -p build; new=$$($(1)); [ "$$new" = "$$(cat $@ 2>/dev/null)" ] || echo "$$new" > $@
build/flags: force
	$(call WRITE,echo '$(CXXFLAGS) $(NVCC_FLAGS)' && uname -m && $(CXX) --version && $(if $(WITH_CUDA),"$(NVCC)" --version &&) \
	  cat Makefile $(OP_BUILD)op.mk | sha256sum)
build/settings: force
	$(call WRITE,echo 'cuda="$(ARCHITECTURES)"' $(if $(OPERATIONS),&& $(if $(TENSORFLOW_SETTINGS),cat "$(TENSORFLOW_SETTINGS)","$(PYTHON)" "$(OP_BUILD)build_settings.py")))

# One compilation for both files: most of its time goes to TensorFlow's headers.
build/operations.o: $(CC)/kernels/$(NAME)_kernels.cc $(CC)/ops/$(NAME)_ops.cc $(HEADERS) build/flags build/settings
	@echo "op: compiling $<"; . build/settings; $(CXX) $(OP_FLAGS) -include $(CC)/ops/$(NAME)_ops.cc -c $< -o $@

# The same kernel for each instruction set; which one runs is decided when it runs.
CPU := $(patsubst $(CC)/cpu/%.cc,build/cpu_%.o,$(wildcard $(CC)/cpu/*.cc))
ifeq ($(shell uname -m),x86_64)
# For processors from before 2013, which have no AVX2: not worth the time of -O3.
build/cpu_kernel_generic.o: ISA := -O1
build/cpu_kernel_avx2.o: ISA := -mavx2 -mfma -mf16c
build/cpu_kernel_avx512.o: ISA := -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx2 -mfma -mf16c \
  -Wno-maybe-uninitialized  # GCC 12's own intrinsics
else
CPU := $(filter-out %_avx2.o %_avx512.o,$(CPU))
endif
build/cpu_%.o: $(CC)/cpu/%.cc $(HEADERS) build/flags
	@echo "op: compiling $<"; $(CXX) $(CXXFLAGS) $(ISA) -c $< -o $@

build/cuda.o: $(CC)/cuda/launch.cu $(HEADERS) build/flags
	@echo "op: compiling $< for $(ARCHITECTURES)"; "$(NVCC)" $(NVCC_FLAGS) -c $< -o $@ || \
	  { echo "op: $(NVCC) could not compile the GPU kernels (above); CUDA=0 leaves them out" >&2; exit 1; }

# What needs no package of Python: compiled while those are installed.
KERNELS := $(CPU) $(if $(WITH_CUDA),build/cuda.o)
objects: $(KERNELS)

# CUDA's runtime is linked statically and its symbols are hidden: TensorFlow may have another version.
LINK := $(if $(WITH_CUDA),"$(NVCC)" -cudart static -Xlinker --exclude-libs=ALL -ccbin "$(lastword $(CXX))", \
  $(CXX) $(if $(SANITIZE),-fsanitize=$(SANITIZE)))
$(LIBRARY): $(OPERATIONS) $(KERNELS)
	@echo "op: linking $@"
	@$(if $(OPERATIONS),. build/settings; ln -sfn "$$library" build/libtensorflow_framework.so)  # a path without spaces
	@$(LINK) -shared $^ -o $@ $(if $(OPERATIONS),build/libtensorflow_framework.so)

COMMA := ,
SPACE := $(subst ,, )
# With the library's size, so that a part of it is not taken for the whole.
$(BUILD): $(LIBRARY) build/settings
	@. build/settings; printf '{"tensorflow": "%s", "cuda": [%s], "bytes": %d}\n' "$${version:-}" \
	  '$(subst $(SPACE),$(COMMA),$(foreach a,$(ARCHITECTURES),"$(a)"))' "$$(wc -c <$<)" >$@

wheel: $(LIBRARY) $(BUILD)
	@rm -rf dist build/lib* build/bdist.* *.egg-info
	@"$(PYTHON)" -m pip --disable-pip-version-check wheel -qq --no-index --no-deps --no-build-isolation --wheel-dir dist .
	@ls dist/*.whl

# The names of NVIDIA's Makefile.
pkg: wheel
	@rm -rf artifacts && cp -r dist artifacts
test:
	@"$(PYTHON)" -m pytest -q $(TESTS)

clean:
	@rm -rf build dist artifacts *.egg-info $(LIBRARY) $(BUILD)
