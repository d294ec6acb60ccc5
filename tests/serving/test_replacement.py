"""A model of the running server is replaced by another one while clients use it."""

import threading

import numpy as np

from deployment.client.client import Client
from deployment.deploy import __main__ as deploy
from tests.serving.conftest import have_ended

NAME = "dlrm_replaced"


def test_replaced_model(server, repository, trained, served):
    """Clients see no error: each answer is that of the first model or of the second one."""
    rows = served["dlrm"].rows(0, 8)
    others = {*server.stubs()}
    common = [
        *(f"--checkpoint_dir={trained['dlrm'].checkpoint}", f"--model_repository={repository}"),
        *(f"--model_name={NAME}", "--monolithic", f"--server_url={server.url}", "--load_model"),
    ]
    assert deploy.main([*common, "--quantize_tables=int8", "--check_rows=0"]) == 0
    with Client(server.url, NAME) as client:
        first = next(client.scores([rows]))
    second = served["dlrm"].expected[:8]
    assert np.abs(first - second).max() > 1e-5
    stubs = {*server.stubs()} - others

    replaced, answers, errors = threading.Event(), [], []

    def use() -> None:
        try:
            with Client(server.url, NAME, patience_s=0) as client:
                while not replaced.is_set():
                    answers.append(next(client.scores([rows])))
                answers.append(next(client.scores([rows])))
        except Exception as error:
            errors.append(error)

    clients = [threading.Thread(target=use) for _ in range(4)]
    for thread in clients:
        thread.start()
    try:
        assert deploy.main([*common, "--overwrite"]) == 0
    finally:
        replaced.set()
        for thread in clients:
            thread.join()
    assert errors == []
    near = [
        [np.abs(scores - model).max() <= 1e-6 for model in (first, second)] for scores in answers
    ]
    assert all(any(model) for model in near)
    assert near[0][0] and all(is_second for _, is_second in near[-4:])
    assert stubs and have_ended(*stubs)
    server.check_alive()
