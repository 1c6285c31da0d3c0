"""Model folders of others, and torch's own settings: neither decides what a model is."""

import json
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import torch
from networks import small, tokens_of

import posteer
from posteer.banks.checks.report import CheckSettings
from posteer.core.errors import InputError
from posteer.core.files import write_folder_atomically
from posteer.models.transformer import checkpoint
from posteer.models.transformer.checkpoint import load_model, save_model, split_tensors
from posteer.models.transformer.network import Architecture, Transformer
from posteer.sweeps.configuration import config_from
from posteer.sweeps.execution import run_sweep
from posteer.sweeps.store import RunStore
from posteer.training.loop import Trainer
from posteer.training.plan import preset

FACTS = {"process": "markov(vocab=3,order=1)"}


def forged(folder, *, weights=None, facts=FACTS, **config):
    """A folder that vouches for itself, with a configuration or weights of somebody else."""
    network = small().network
    shape = {**asdict(network.shape), **config}
    tensors = {**network.state_dict(), **(weights or {})}
    files = {"config.json": json.dumps(shape).encode(), **split_tensors(tensors)}
    write_folder_atomically(folder, checkpoint.with_manifest(files, facts), checkpoint.is_ours)
    return folder


@pytest.mark.parametrize("positions", ["none", "learned"])
def test_an_architecture_knows_the_tensors_of_its_network(positions):
    network = small(positions).network
    found = {name: tuple(tensor.shape) for name, tensor in network.state_dict().items()}
    assert dict(network.shape.weights()) == found and network.shape.n_weights == len(found)


@pytest.mark.parametrize(
    ("config", "complaint"),
    [
        ({"layers": 3}, "do not fit the architecture"),
        ({"layers": 10_000, "width": 4, "feedforward": 1}, "do not fit the architecture"),
        ({"width": 64}, "do not fit the architecture"),
        ({"feedforward": 49}, "do not fit the architecture"),
        ({"positions": "learned"}, "do not fit the architecture"),
        ({"width": 10**7, "heads": 1}, "does not describe a transformer: width 10000000"),
        ({"layers": 10**9}, "does not describe a transformer: layers 1000000000"),
        ({"vocab_size": 3.0}, "does not describe a transformer"),
        ({"order": 1.0}, "does not describe a transformer"),
        ({"order": True}, "order True: expected a whole number"),
        ({"width": 32.0}, "does not describe a transformer"),
        ({"order": 2}, "order 2 for the process markov"),
        ({"vocab_size": 4}, "vocabulary 4 and order 1 for the process markov"),
    ],
)
def test_what_does_not_fit_is_refused_before_anything_is_built(
    config, complaint, tmp_path, monkeypatch
):
    folder = forged(tmp_path / "model", **config)
    monkeypatch.setattr(checkpoint, "Transformer", lambda shape: pytest.fail("it was built"))
    with pytest.raises(InputError, match=complaint):
        load_model(folder)


@pytest.mark.parametrize(
    ("weights", "complaint"),
    [
        ({"head.bias": torch.tensor([0.0, torch.nan, 0.0])}, "head.bias are not all finite"),
        ({"head.bias": torch.tensor([0.0, torch.inf, 0.0])}, "head.bias are not all finite"),
        ({"head.bias": torch.tensor([0, 1, 2])}, "head.bias is I64"),
        ({"more": torch.zeros(1)}, "do not fit the architecture"),
    ],
)
def test_weights_that_are_no_numbers_are_refused(weights, complaint, tmp_path):
    with pytest.raises(InputError, match=complaint):
        load_model(forged(tmp_path / "model", weights=weights))


@pytest.fixture
def _default_float64():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def saved(folder):
    save_model(folder, small().network, FACTS)
    return folder


def test_opening_a_model_leaves_the_generator_alone(tmp_path):
    folder = saved(tmp_path / "model")
    before = torch.get_rng_state()
    model = load_model(folder)
    assert torch.equal(torch.get_rng_state(), before)
    assert model.fingerprint == small().fingerprint


PLAIN = {"length": 5, "device": "cpu"}
METHODS = ["coordinate", "gcg(steps=3)", "simplex-pt(steps=3)", "soft-pt(steps=3)", "ppt(steps=3)"]


def answer(method):
    """What a run on the trained urn says, but for its seconds."""
    found = posteer.elicit("urn", "frequency(0.3)", method=method, **PLAIN)
    steps = [(step.value, step.forward_tokens) for step in found.answer.history]
    return found.prompt, found.judged, found.answer.surrogate, steps


EXPECTED = {}


def usual(method):
    if method not in EXPECTED:
        assert torch.get_default_dtype() == torch.float32
        EXPECTED[method] = answer(method)
    return EXPECTED[method]


@pytest.fixture(params=METHODS)
def run(request):
    return request.param, usual(request.param)


def test_the_default_type_changes_nothing(run, request):
    method, expected = run
    request.getfixturevalue("_default_float64")
    assert answer(method) == expected


@pytest.mark.usefixtures("_default_float64")
def test_networks_are_float32_whatever_the_default(tmp_path):
    shape = Architecture(vocab_size=2, order=0, layers=1, width=8, heads=2, feedforward=8)
    assert {tensor.dtype for tensor in Transformer(shape).state_dict().values()} == {torch.float32}
    folder = forged(tmp_path / "m", weights={"head.bias": torch.zeros(3, dtype=torch.float64)})
    model = load_model(folder)
    laws = model.log_predictive(tokens_of(model, 2, 4))
    assert laws.dtype == torch.float32


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_gradients_are_taken_in_any_mode(run, mode):
    method, expected = run
    with mode():
        assert answer(method) == expected
        assert not torch.is_grad_enabled()


@contextmanager
def nowhere():
    """As `torch.set_default_device` leaves it: tensors that do not say where are on no device."""
    torch.set_default_device("meta")
    try:
        yield
    finally:
        torch.set_default_device(None)


SURROUNDINGS = {
    "autocast": lambda: torch.autocast("cpu", dtype=torch.bfloat16),
    "default device": nowhere,
    "a device around": lambda: torch.device("meta"),
}


@pytest.fixture(params=SURROUNDINGS)
def around(request):
    return SURROUNDINGS[request.param]


def test_neither_autocast_nor_a_default_device_changes_anything(run, around):
    method, expected = run
    with around():
        assert answer(method) == expected


def drawn(model, **more):
    return posteer.sample(model, rollouts=10, length=12, device="cpu", **more)


def trained(_folder):
    plan = replace(preset("tiny"), steps=2, batch=2, length=6, warmup=1)
    with TemporaryDirectory() as folder:
        Trainer(plan, Path(folder) / "run").run()
        return load_model(Path(folder) / "run" / "model").fingerprint


EFFORT = CheckSettings(effort=0.001, length=16, future=8)
DOORS = {
    "evaluate": lambda _: posteer.evaluate("urn", "dyck", "0101", device="cpu").judged,
    "expected_utility": lambda _: posteer.expected_utility(
        "urn", "forward-xent(tau-0.2)", "0110", 2
    ).expected_utility.tolist(),
    "landscape": lambda _: posteer.landscape("urn", "dyck", 3, 2).optimum,
    "estimate": lambda folder: posteer.estimate_from_bank(
        folder / "bank", "dyck", "0101", 4
    ).tolist(),
    "sample": lambda _: drawn("urn").kernels.tolist(),
    "sample from Bayes": lambda _: drawn("exact:markov(vocab=3)", context="01").kernels.tolist(),
    "check": lambda folder: posteer.check_filter("exact:urn", folder / "bank", EFFORT).to_json(),
    "load": lambda _: posteer.load("urn").fingerprint,
    "open_model": lambda _: posteer.open_model("exact:urn").fingerprint,
    "train": trained,
}


@pytest.fixture(scope="module")
def banked(tmp_path_factory):
    folder = tmp_path_factory.mktemp("banked")
    drawn("exact:urn", out=folder / "bank")
    return folder


EXPECTED_AT = {}


@pytest.mark.parametrize("door", DOORS)
def test_no_other_door_minds_them_either(door, around, banked):
    if door not in EXPECTED_AT:
        EXPECTED_AT[door] = DOORS[door](banked)
    with around():
        assert DOORS[door](banked) == EXPECTED_AT[door]


def swept(folder, threads, workers=1):
    config = config_from(
        {
            "name": "threads",
            "models": "urn",
            "utilities": "dyck",
            "methods": ["coordinate", "gcg(steps=3)"],
            "lengths": [6],
            "seeds": 2,
        },
        "test",
    )
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        run_sweep(config, folder, device="cpu", batch_size=2, workers=workers)
    finally:
        torch.set_num_threads(before)
    store = RunStore(folder)
    records, _ = store.records(sorted(store.names()))
    return [(one["result"]["prompt"], one["result"]["expected_utility"]) for one in records]


@pytest.mark.slow
def test_a_sweep_is_the_same_on_the_same_threads_and_nearly_on_others(tmp_path):
    """The bits on as many threads; elsewhere J to rounding, and so the prompts but for ties."""
    one, again, two = (swept(tmp_path / name, n) for name, n in (("a", 1), ("b", 1), ("c", 2)))
    assert one == again and len(one) == 4
    for (_, value), (_, other) in zip(one, two, strict=True):
        assert abs(value - other) < 1e-6


@pytest.mark.slow
def test_a_sweep_is_nearly_the_same_with_other_workers(tmp_path):
    """They share the cores: J to rounding, and so the prompts but for ties."""
    alone, beside = (swept(tmp_path / str(n), 1, workers=n) for n in (1, 2))
    assert len(alone) == len(beside) == 4
    for (prompt, value), (other, near) in zip(alone, beside, strict=True):
        assert abs(value - near) < 1e-6
        assert prompt == other
