"""The CPU part under sanitizers, with real threads."""

import platform
import shutil
import subprocess
from pathlib import Path

import pytest

CC = Path(__file__).resolve().parents[2] / "kernels/distributed_embeddings_kernels/cc"
FLAGS_OF_FILE = {
    "embedding_bag_cpu.cc": [],
    "kernel_generic.cc": [],
    "kernel_avx2.cc": ["-mavx2", "-mfma", "-mf16c"],
    "kernel_avx512.cc": [
        *("-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl", "-mavx2", "-mfma", "-mf16c")
    ],
}


@pytest.mark.long
@pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not there")
@pytest.mark.parametrize("sanitizer", ["address,undefined", "thread"])
def test_under_sanitizers(tmp_path, sanitizer):
    flags = ["-std=c++17", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-Wno-psabi", f"-I{CC}"]
    compiler = ["g++", *flags, f"-fsanitize={sanitizer}", "-fno-sanitize-recover=all"]
    objects = []
    for name, isa_flags in FLAGS_OF_FILE.items():
        if isa_flags and platform.machine() != "x86_64":
            continue
        objects.append(str(tmp_path / f"{name}.o"))
        command = [*compiler, *isa_flags, "-c", str(CC / "cpu" / name), "-o", objects[-1]]
        subprocess.run(command, check=True)
    driver = str(tmp_path / "driver")
    source = str(Path(__file__).with_name("driver.cc"))
    subprocess.run([*compiler, source, *objects, "-o", driver, "-lpthread"], check=True)
    done = subprocess.run([driver], capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert " passed, 0 failed" in done.stdout
