"""Build and packaging of the op: content of the wheel, the CUDA part, and missing tools."""

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile

import pytest
import tensorflow as tf
from tensorflow_dot_based_interact.python.ops import dot_based_interact_ops as ops

NVCC = shutil.which("nvcc")
CUOBJDUMP = shutil.which("cuobjdump")


@pytest.fixture
def package(root, tmp_path):
    """A copy of the package's sources, in a folder with a space in its name."""
    folder = tmp_path / "a copy" / "op"
    shutil.copytree(root / "op_build", folder.parent / "op_build")
    built = shutil.ignore_patterns(
        *("build", "dist", "_dot_based_interact_ops.*", "*.egg-info", "__pycache__")
    )
    shutil.copytree(root / "tensorflow-dot-based-interact", folder, ignore=built)
    return folder


def make(folder, *arguments, timeout=300, **environment):
    return subprocess.run(
        ["make", f"PYTHON={sys.executable}", *arguments],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


def test_name_and_content_of_wheel(root):
    (wheel,) = (root / "tensorflow-dot-based-interact/dist").glob("*.whl")
    assert re.fullmatch(
        rf"tensorflow_dot_based_interact-[\d.]+\+tf{tf.__version__}-py3-none-linux_\w+\.whl",
        wheel.name,
    )
    with zipfile.ZipFile(wheel) as content:
        names = content.namelist()
        facts = json.loads(
            content.read("tensorflow_dot_based_interact/python/ops/" + ops.BUILD.name)
        )
    for name in ("_dot_based_interact_ops.so", "dot_based_interact_ops.py", "reference.py"):
        assert f"tensorflow_dot_based_interact/python/ops/{name}" in names
    assert facts["tensorflow"] == tf.__version__


@pytest.mark.long
@pytest.mark.parametrize(("target", "architecture"), [("volta", 70), ("ampere", 80)])
def test_targets_of_architectures(package, tmp_path, target, architecture):
    """`make volta` and `make ampere` of NVIDIA's package, with a stand-in for nvcc."""
    nvcc = tmp_path / "nvcc"
    nvcc.write_text('#!/bin/sh\nprintf "compute_70\\ncompute_80\\n"\necho "$@" >>"$0.calls"\n')
    nvcc.chmod(0o755)
    done = make(package, target, f"NVCC={nvcc}")
    assert done.returncode == 0, done.stderr
    calls = (tmp_path / "nvcc.calls").read_text()
    (compiled,) = (line for line in calls.splitlines() if "launch.cu" in line)
    assert re.findall(r"code=sm_(\d+)", compiled) == [str(architecture)]


@pytest.mark.long
def test_artifacts(root, tmp_path):
    """`make pkg`, the command of NVIDIA's package; a library that exists is not built again."""
    for name in ("op_build", "tensorflow-dot-based-interact"):
        shutil.copytree(root / name, tmp_path / name, symlinks=True)
    folder = tmp_path / "tensorflow-dot-based-interact"
    cuda, *architectures = (root / ".venv/op").read_text().split()
    choice = {"CUDA_ARCHITECTURES": " ".join(architectures)} if architectures else {}
    done = make(folder, "pkg", f"CUDA={cuda}", **choice)
    assert done.returncode == 0, done.stderr
    # The wheel of the environment may come from ~/.cache.
    is_built = any((root / "tensorflow-dot-based-interact").rglob("_*_ops.so"))
    assert not is_built or "compiling" not in done.stdout
    (wheel,) = (folder / "artifacts").glob("*.whl")
    assert wheel.read_bytes() == (folder / "dist" / wheel.name).read_bytes()


@pytest.mark.skipif(NVCC is None, reason="no nvcc here")
@pytest.mark.quick("tensorflow-*")  # the other one takes minutes
@pytest.mark.parametrize("op", ["tensorflow-dot-based-interact", "distributed-embeddings/kernels"])
def test_compilation_of_cuda_kernels(root, tmp_path, op):
    """By nvcc; the set-up compiles them where a GPU is, and tests/gpu in its emulator."""
    for name in ("op_build", op):
        built = shutil.ignore_patterns("build", "dist", "_*_ops.*")
        shutil.copytree(root / name, tmp_path / name, ignore=built)
    described = subprocess.run([NVCC, "--help"], capture_output=True, text=True, check=True).stdout
    # A third of the time; older versions do not have it.
    quick = {"NVCC_APPEND_FLAGS": "-Ofc=max"} if "--Ofast-compile" in described else {}
    flags = ("CUDA=1", "CUDA_ARCHITECTURES=90", "build/cuda.o")
    done = make(tmp_path / op, *flags, timeout=900, **quick)
    assert done.returncode == 0 and "for 90" in done.stdout, done.stderr
    assert b"sm_90" in (tmp_path / op / "build/cuda.o").read_bytes()


@pytest.mark.parametrize(("gpus", "cuda"), [("", "0"), ("/dev/nvidia0", "1")])
def test_automatic_choice_of_cuda(package, tmp_path, gpus, cuda):
    """The settings are those without CUDA where no GPU is visible, else those with it."""
    nvcc = tmp_path / "nvcc"
    nvcc.write_text("#!/bin/sh\necho compute_90\n")
    nvcc.chmod(0o755)
    flags = []
    for choice in ("auto", cuda):
        done = make(
            *(package, "build/flags", f"CUDA={choice}", f"GPU_DEVICES={gpus}", f"NVCC={nvcc}")
        )
        assert done.returncode == 0, done.stderr
        flags.append((package / "build/flags").read_text())
    assert flags[0] == flags[1] and ("sm_90" in flags[0]) == bool(gpus)


@pytest.mark.skipif(CUOBJDUMP is None, reason="no cuobjdump here: it lists machine code")
def test_machine_code_of_library():
    listed = subprocess.run(
        [CUOBJDUMP, "--list-elf", ops.LIBRARY], capture_output=True, text=True, check=False
    )
    assert sorted(set(re.findall(r"\.sm_(\d+)\.cubin", listed.stdout))) == sorted(
        ops.build()["cuda"]
    )


@pytest.mark.parametrize(
    ("program", "arguments", "message"),
    [
        (None, ["CUDA=1"], "CUDA=1 asks for the CUDA part, but no nvcc is on the PATH.*NVCC="),
        (None, ["CUDA=yes"], "CUDA must be auto, 0 or 1, got yes"),
        (
            "echo compute_90",
            ["CUDA=1", "CUDA_ARCHITECTURES=20 30"],
            "none of CUDA_ARCHITECTURES=20 30 is known",
        ),
        (
            'case "$*" in --list*) echo compute_90;; --version) ;; *) exit 1;; esac',
            ["CUDA=1", "build/cuda.o"],
            r"could not compile the GPU kernels \(above\); CUDA=0 leaves them out",
        ),
    ],
)
def test_errors_of_the_cuda_part(package, tmp_path, program, arguments, message):
    """No nvcc, or a stand-in for it that fails."""
    if program is None:
        tools = tmp_path / "tools"
        tools.mkdir()
        for name in ("bash", "make", "uname", "g++"):
            (tools / name).symlink_to(shutil.which(name))
        done = make(package, *arguments, PATH=str(tools))
    else:
        (tmp_path / "nvcc").write_text(f"#!/bin/bash\n{program}\n")
        (tmp_path / "nvcc").chmod(0o755)
        done = make(package, *arguments, f"NVCC={tmp_path / 'nvcc'}")
    assert done.returncode != 0
    assert re.search(message, done.stderr), done.stderr


def test_changes_of_build_settings(package):
    """A file is rewritten only if TensorFlow, or a flag, a compiler or the Makefile changes."""

    def settings(*arguments):
        done = make(package, "CUDA=0", "build/flags", "build/settings", *arguments)
        assert done.returncode == 0, done.stderr
        files = [package / "build/flags", package / "build/settings"]
        return [(file.read_text(), file.stat().st_mtime_ns) for file in files]

    program = package.parent / "op_build/build_settings.py"
    program.write_text("print('version=2')")  # TensorFlow would be imported in each call
    first = settings()
    assert "version=2\n" in first[1][0]
    assert settings() == first
    assert settings("SANITIZE=address")[0][0] != first[0][0]
    program.write_text("print('version=3')")
    assert settings()[1][0] == first[1][0].replace("version=2", "version=3")
    failed = make(package, "CUDA=0", "build/flags", "CXX=no-compiler")
    assert failed.returncode != 0 and "no-compiler: command not found" in failed.stderr
    program.write_text("import sys; sys.exit('no TensorFlow')")
    assert make(package, "CUDA=0", "build/settings").returncode != 0
    (package / "Makefile").write_text((package / "Makefile").read_text() + "# another one\n")
    make(package, "CUDA=0", "build/flags")
    assert (package / "build/flags").read_text() != first[0][0]


@pytest.mark.long
def test_op_under_sanitizers(package, root, run_script):
    """Address and undefined-behaviour sanitizer around the tests of the op, bad input too."""
    done = make(package, "CUDA=0", "SANITIZE=address,undefined")
    assert done.returncode == 0, done.stderr
    runtimes = [
        subprocess.run(
            ["g++", f"-print-file-name={name}"], capture_output=True, text=True, check=True
        ).stdout.strip()
        for name in ("libasan.so", "libubsan.so")
    ]
    done = run_script(
        *("-m", "pytest", "-q", "-p", "no:faulthandler", "tests/op/test_dot_based_interact.py"),
        env={
            "LD_PRELOAD": " ".join(runtimes),
            "ASAN_OPTIONS": "detect_leaks=0",  # Python's own
            "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
            "PYTHONPATH": str(package),
        },
        timeout=900,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "runtime error" not in done.stderr
