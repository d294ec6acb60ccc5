"""The latency tool on the real server, with both clients."""

import pytest

from deployment.evaluate_latency import __main__ as evaluate_latency
from tests.deployment.evaluate.latency_csv import read_csv

QUICK = ("--seconds=0.2", "--warmup_seconds=0.05", "--requests=10")


def test_command_with_own_client(server, repository, tmp_path, run_script):
    done = run_script(
        *("-m", "deployment.evaluate_latency", f"--url={server.url}", "--client=own"),
        *("--model_name=dlrm,dlrm_mono", f"--model_repository={repository}", *QUICK),
        *("--batch_sizes=1,32", "--concurrency=1,4", f"--output={tmp_path}/l"),
    )
    assert (done.returncode, done.stderr) == (0, "")
    result = read_csv(tmp_path / "l.csv")
    settings = [(m.batch_size, m.concurrency, m.model) for m in result]
    assert settings == [
        (batch_size, concurrency, model)
        for batch_size in (1, 32)
        for concurrency in (1, 4)
        for model in ("dlrm", "dlrm_mono")
    ]
    for m in result:
        assert m.requests >= 10 and m.errors == 0
        assert 0 < m.p50_ms <= m.p90_ms <= m.p95_ms <= m.p99_ms
        assert m.rows_per_s == pytest.approx(m.requests * m.batch_size / m.elapsed_s, rel=0.01)
        assert m.batching == "dynamic"
        if m.concurrency == 1:
            assert m.rows_per_execution == m.batch_size
        else:
            assert m.rows_per_execution > m.batch_size
    assert len(done.stdout.splitlines()) == 1 + 1 + 8 + 1


def test_too_many_rows(server, repository, capsys):
    flags = [f"--url={server.url}", "--model_name=dlrm", f"--model_repository={repository}"]
    assert evaluate_latency.main([*flags, "--client=own", "--batch_sizes=4096"]) == 2
    assert "--batch_sizes has 4,096, dlrm takes 2,048 rows" in capsys.readouterr().err
