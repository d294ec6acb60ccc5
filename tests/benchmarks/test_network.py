"""The benchmark of the network: its figures, machines, ranks, page, and a small run."""

import argparse
import runpy
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from benchmarks.dlrm_training import workload as dlrm_workload
from benchmarks.network import __main__ as network
from benchmarks.network import machines as network_machines
from benchmarks.network import models as network_models
from benchmarks.network.models import ETHERNET_100, HDR, MODELS, NVLINK, SYNTHETIC, Load
from benchmarks.rank_scaling import why_missing as why_launcher_missing
from dataloading.generate_feature_spec import VARIANTS

SMALL_TABLES = ",".join(map(str, [50] * 26))


def gone(pid: int) -> bool:
    """Returns whether a process has ended."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:  # it may also end between its being opened and read
        return True
    return stat.rpartition(")")[2].split()[0] == "Z"


def test_tables_of_the_synthetic_models(root):
    """The page and the example of distributed-embeddings have the same sizes."""
    folder = root / "distributed-embeddings/examples/benchmarks/synthetic_models"
    sizes = runpy.run_path(str(folder / "model_sizes.py"))["MODELS"]
    for model in SYNTHETIC:
        example = sizes[model.name.lower()]
        assert model.tables == tuple((g.count, g.rows, g.dim, g.hotness) for g in example.groups)
        assert (model.mlp, model.num_numerical) == (example.mlp, example.num_numerical)
        assert model.pooling == example.pooling


@pytest.mark.parametrize(
    ("name", "parameters"), [("DLRM large", 22.8e9), ("DLRM extra large", 113e9)]
)
def test_published_sizes_of_models(name, parameters):
    (model,) = (model for model in MODELS if model.name == name)
    assert 128 * sum(VARIANTS[model.variant]) == pytest.approx(parameters, rel=5e-3)


@pytest.mark.parametrize(
    ("model", "num_tables", "gib"),
    # As published with their configurations.
    list(zip(SYNTHETIC, (107, 311, 612), (26.3, 206.2, 773.8), strict=True)),
    ids=[model.name for model in SYNTHETIC],
)
def test_published_sizes_of_synthetic_models(model, num_tables, gib):
    assert sum(count for count, *_ in model.tables) == num_tables
    size = sum(count * rows * dim * 4 for count, rows, dim, _ in model.tables)
    assert size / 2**30 == pytest.approx(gib, abs=0.06)


def test_dlrm_load_by_hand():
    """26 vectors of 512 bytes out of and into a rank for each of 65,536 / 8 samples, in all."""
    load = network_models.ranking_load(MODELS[0], 8, "TF32")
    assert load.between == load.of_machine == 0
    mean = 7 / 8 * 65536 / 8 * 26 * (2 * 512 + 4)
    dense = 2 * 7 / 8 * 4 * 2_372_481  # bottom 13-512-256-128, top 480-1024-1024-512-256-1
    assert mean + dense <= load.within <= 1.2 * mean + dense  # the plan is not quite even
    half = network_models.ranking_load(MODELS[0], 8, "mixed")
    assert half.within - dense == pytest.approx((load.within - dense) / 2, rel=0.05)


def test_published_throughputs_below_their_bound():
    assert all(tuple(model.samples_per_s) == network_models.PRECISIONS for model in MODELS)
    for line in network.published_table()[-len(MODELS) * 2 :]:
        assert 0 < float(line.split("|")[-2]) < 1  # or the bound would be wrong


def test_published_steps_above_their_bound():
    for line in network.synthetic_table()[-9:]:
        assert 0 < float(line.split("|")[-2]) < 1


def test_links_by_hand():
    load = Load(within=3e9, between=50e6, of_machine=250e6)
    assert load.ms(NVLINK) == pytest.approx(10)
    assert load.ms(HDR) == pytest.approx(2)
    assert load.ms(ETHERNET_100) == pytest.approx(20)
    assert load.step_ms(HDR) == pytest.approx(10)
    assert load.step_ms(ETHERNET_100) == pytest.approx(20)


@pytest.fixture
def made(tmp_path):
    """Two machines."""
    if why := network_machines.why_missing():
        pytest.skip(why)
    with network_machines.machines(2, tmp_path) as measurements:
        yield measurements


def test_speed_of_a_link(made):
    """4 MB at 100 Mbit/s take 0.32 s, and none at all over another network."""
    receive = (
        "import socket\n"
        "link = socket.create_server(('10.78.0.1', 5000)).accept()[0]\n"
        "while link.recv(2**20): pass\n"
        "link.sendall(b'!')\n"
    )
    send = (
        "import socket, time\n"
        "for _ in range(1200):\n"
        "    try: link = socket.create_connection(('10.78.0.1', 5000)); break\n"
        "    except OSError: time.sleep(0.05)\n"
        "begin = time.perf_counter()\n"
        "link.sendall(bytes(4_000_000)); link.shutdown(socket.SHUT_WR); link.recv(1)\n"
        "print(time.perf_counter() - begin)\n"
    )

    def on(machine: str, program: str) -> subprocess.Popen:
        command = made.command(machine, [sys.executable, "-c", program])
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    made.limit(1e8)
    with on("machine0", receive), on("machine1", send) as sender:
        assert 0.30 < float(sender.stdout.read()) < 10
    made.limit(None)
    result = subprocess.run(
        made.command("machine1", ["hostname"]), capture_output=True, text=True, check=True
    )
    assert result.stdout == "machine1\n"


def test_end_of_machines(tmp_path):
    if why := network_machines.why_missing():
        pytest.skip(why)
    pids = []
    with (
        pytest.raises(RuntimeError, match="tc qdisc add"),
        network_machines.machines(2, tmp_path) as measurements,
    ):
        sleeper = subprocess.Popen(measurements.command("machine0", ["sleep", "60"]))
        pids += [sleeper.pid, *(each.pid for each in measurements._namespaces.values())]
        assert not any(map(gone, pids))
        measurements.limit(0.0)
    sleeper.wait(timeout=60)
    assert len(pids) == 3
    assert all(map(gone, pids))


def test_missing_programs(monkeypatch):
    monkeypatch.setattr(network_machines, "_PATH", "/nowhere")
    assert network_machines.why_missing() == (
        "not installed: unshare (util-linux), nsenter (util-linux), ip (iproute2), tc (iproute2)"
    )


def test_refused_namespaces(monkeypatch, tmp_path):
    for name in ("unshare", "nsenter", "ip", "tc"):
        program = tmp_path / name
        program.write_text("#!/bin/sh\necho no >&2\nexit 1\n")
        program.chmod(0o755)
    monkeypatch.setattr(network_machines, "_PATH", str(tmp_path))
    assert network_machines.why_missing() == "namespaces need root: no"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--machines", "1"], "a network takes --machines 2 or more"),
        (["--ranks_per_machine", "0"], "--ranks_per_machine 1 or more"),
        (["--batch_size", "7"], "--batch_size 7 is not a multiple of the 2 ranks"),
        (["--rates", "0"], "--rates and --steps are 1 or more"),
        (["--rounds", "1"], "nothing can be measured here (not root): take --rounds 0"),
    ],
)
def test_invalid_arguments(options, message, monkeypatch, capsys):
    monkeypatch.setattr(network, "why_missing", lambda: "not root")
    with pytest.raises(SystemExit) as stopped:
        network.main(options)
    assert stopped.value.code == 2
    assert message in capsys.readouterr().err


def test_bytes_of_the_link(monkeypatch):
    heading = "Inter-|   Receive\n face |bytes\n"
    counts = "    lo: 7 1 0 0 0 0 0 0 7 1 0 0 0 0 0 0\n link0: 12 1 0 0 0 0 0 0 34 1 0 0 0 0 0 0\n"
    monkeypatch.setattr(Path, "read_text", lambda path: heading + counts)
    passed_bytes, process = network_machines._Namespaces.passed_bytes, SimpleNamespace(pid=1)
    assert passed_bytes(process) == (34, 12)  # sent, received
    monkeypatch.setattr(Path, "read_text", lambda path: heading)
    with pytest.raises(ValueError, match="process 1 has no network interface link0"):
        passed_bytes(process)


def test_bytes_of_machines():
    planned = [{"sent": {"ids": n}, "received": {"ids": 10 * n}} for n in range(4)]
    assert network.of_machines(planned, 2).tolist() == [[1, 10], [5, 50]]


def made_up(passed: float, limited_ms: float) -> network.NetworkMeasurements:
    """1 MB a step each way; `passed` of it was counted; 10 ms without a limit."""
    measurements = network.NetworkMeasurements()
    measurements.version, measurements.foreign_cpu = "2.0", [0.25]
    measurements.idle_bytes_per_s = 5e5
    for setting in network.SETTINGS:
        measurements.planned[setting.name] = np.array([(1e6, 1e6), (1e6, 0.5e6)])
        for rate, ms in ((None, 10.0), (100, limited_ms)):
            measurements.step_ms[setting.name, rate] = [ms, ms]
            turn = measurements.planned[setting.name] * passed
            measurements.passed[setting.name, rate] = [turn, turn]
    return measurements


ARGUMENTS = argparse.Namespace(
    machines=2,
    ranks_per_machine=1,
    batch_size=2048,
    rates=(100,),
    rounds=2,
    steps=3,
    table_rows=dlrm_workload.TABLE_ROWS,
)


@pytest.fixture
def rendered(monkeypatch):
    """Renders measurements; of what is computed only the first lines, which other tests have."""
    monkeypatch.setattr(network, "NUM_RANKS", (8,))
    monkeypatch.setattr(network_models, "SYNTHETIC", ())
    # Measurements need Horovod, made-up ones do not.
    monkeypatch.setattr(network.importlib.metadata, "version", lambda name: f"{name}'s")
    return lambda measurements: network.page_of(measurements, ARGUMENTS)


def test_page_of_made_up_measurements(rendered):
    # 1 MB at 100 Mbit/s are 80 ms; with the 10 ms of the step 90.
    page = rendered(made_up(1.01, 108.0))
    assert page.is_met
    page = str(page)
    for line in (
        "| float32 | 1.000 | 1.010 [1.010, 1.010] | 1.0100 [1.0100, 1.0100] |",
        "| float32 | no limit |  |  | 10 [10, 10] |  |  |",
        "| float32 | 100 | 80 | 90 | 108 [108, 108] | 1.20 [1.20, 1.20] | 0.82 |",
        "- float32: 1.0100 of the plan's bytes on the interfaces; target 1 to 1.02: met",
        "- float32, 100 Mbit/s: the fastest turn took 1.35 of the least time by the plan; "
        "target 1 or more: met",
        "- row, column and no slices, copies: 1.0100 of the plan's bytes on the interfaces; "
        "for information",
    ):
        assert line in page.splitlines(), page
    assert "pass 0.50 MB/s" in page
    assert "- other processes kept 0.25 [0.25, 0.25] cores busy" in page


@pytest.mark.parametrize(
    ("passed", "limited_ms", "missed"),
    [
        (0.99, 108.0, "float32: 0.9900 of the plan's bytes on the interfaces; target 1 to 1.02"),
        (1.03, 108.0, "float32: 1.0300 of the plan's bytes on the interfaces; target 1 to 1.02"),
        (1.01, 60.0, "the fastest turn took 0.75 of the least time by the plan; target 1 or more"),
    ],
    ids=["fewer bytes", "more bytes", "faster than the bound"],
)
def test_missed_targets(passed, limited_ms, missed, rendered):
    page = rendered(made_up(passed, limited_ms))
    assert not page.is_met
    assert f"{missed}: MISSED" in str(page)


def test_computed_page(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(network, "why_missing", lambda: "not root")
    output = tmp_path / "page.md"
    assert network.main(["--rounds", "0", "--output", str(output)]) == 0
    page = output.read_text()
    assert page in capsys.readouterr().out
    assert "nothing was measured" in page
    assert page.count("| DCNv2 large | mixed |") == len(network.NUM_RANKS)


@pytest.mark.long
def test_small_run(run_script, tmp_path):
    if why := network_machines.why_missing() or why_launcher_missing("mpi"):
        pytest.skip(why)
    options = ["--batch_size", "256", "--rounds", "1", "--steps", "1", "--rates", "500"]
    options += ["--table_rows", SMALL_TABLES, "--output", tmp_path / "page.md"]
    done = run_script("-m", "benchmarks.network", *options, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    page = (tmp_path / "page.md").read_text()
    assert page in done.stdout
    assert f"--table_rows {SMALL_TABLES}" in page
    assert "| float32 | 500 |" in page
