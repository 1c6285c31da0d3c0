"""Files of atoms: written and read again alike, and refused in one line where they are none."""

import io
import json
import zipfile

import numpy as np
import pytest
import torch
from refusals import refused
from safetensors.torch import save_file

import posteer
from posteer import InputError, open_process, save_atoms
from posteer.families.atoms.files import LARGEST_FILE
from posteer.tokens.contexts import all_sequences

FAIR, STICKY = [[0.5, 0.5]], [[0.9, 0.1], [0.2, 0.8]]
MACHINE = np.array([[[0.5, 0.1], [0.0, 0.4]], [[0.1, 0.2], [0.3, 0.4]]])
KINDS = ["safetensors", "npz", "json"]


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_saved_is_read_again(tmp_path, kind):
    file = tmp_path / f"atoms.{kind}"
    atoms = {"z": torch.tensor(STICKY), "hmm": (MACHINE, [0.3, 0.7]), "a": FAIR, "still": MACHINE}
    assert save_atoms(file, atoms, weights=[0.1, 0.2, 0.3, 0.4]) == file
    prior = open_process(f"mixture({file})")
    start = "start=[0.3,0.7]"
    text = MACHINE.tolist()
    parts = f"mixture({STICKY}),hmm({text},{start}),mixture({FAIR}),hmm({text})"
    expected = open_process(f"atoms({parts},weights=[0.1,0.2,0.3,0.4])")
    prompts = all_sequences(2, 5)
    assert torch.allclose(prior.evidence(prompts), expected.evidence(prompts), rtol=1e-6)
    weights = dict(zip(prior.names, prior.log_weights.exp().tolist(), strict=True))
    assert weights == pytest.approx({"z": 0.1, "hmm": 0.2, "a": 0.3, "still": 0.4})
    again = open_process(prior.spec)
    assert torch.equal(again.evidence(prompts), prior.evidence(prompts))


def test_numpy_writes_them_too(tmp_path):
    np.savez_compressed(tmp_path / "a.npz", one=np.array(STICKY), two=np.array([[1, 0]]))
    np.savez(tmp_path / "b.npz", one=np.asfortranarray(STICKY), two=np.array([[1, 0]]))
    prompts = all_sequences(2, 4)
    one, two = (open_process(f"mixture({tmp_path / name})") for name in ("a.npz", "b.npz"))
    assert one.names == ("one", "two") and torch.equal(one.evidence(prompts), two.evidence(prompts))


@pytest.mark.parametrize(
    ("atoms", "weights", "match"),
    [
        ({}, None, "no atoms"),
        ({"weights": FAIR}, None, "another name"),
        ({"a.start": FAIR}, None, "another name"),
        ({"a": [0.5, 0.5]}, None, "1 axes"),
        ({"a": [[0.5, 0.6]]}, None, "not a distribution"),
        ({"a": [[0.5, "x"]]}, None, "lists of numbers"),
        ({"a": FAIR, "b": [[0.2, 0.3, 0.5]]}, None, r"over \[2, 3\] tokens"),
        ({"a": FAIR}, [0.5, 0.5], "one for each"),
        ({"a": FAIR}, [0.5], "not a distribution"),
        ({"a": (MACHINE, [1.0])}, None, "a start for each state"),
    ],
)
def test_what_no_one_could_read_is_not_written(tmp_path, atoms, weights, match):
    for kind in KINDS:
        with pytest.raises(InputError, match=match):
            save_atoms(tmp_path / f"x.{kind}", atoms, weights=weights)
    with pytest.raises(InputError, match="ends with one of"):
        save_atoms(tmp_path / "x.txt", {"a": FAIR})
    assert list(tmp_path.iterdir()) == []


def as_json(*atoms):
    return json.dumps({"atoms": list(atoms)}).encode()


def as_tensors(tmp_path, **tensors):
    save_file({name: torch.as_tensor(one) for name, one in tensors.items()}, tmp_path / "t")
    return (tmp_path / "t").read_bytes()


def as_npz(**arrays):
    packed = io.BytesIO()
    np.savez_compressed(packed, **arrays)
    return packed.getvalue()


def a_bomb():
    """Two kilobytes of archive whose one member says that it is eight gibibytes of zeros."""
    packed = bytearray(as_npz(a=np.zeros((2**16, 2))))
    at = packed.index(b"PK\x01\x02")
    packed[at + 24 : at + 28] = (2**32 - 2).to_bytes(4, "little")
    return bytes(packed)


def a_boast():
    """An array whose header says 2**40 rows, and has two."""
    plain = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        plain, {"shape": (2**40, 2), "fortran_order": False, "descr": "<f8"}
    )
    plain.write(np.array([[0.5, 0.5]]).tobytes())
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("a.npy", plain.getvalue())
    return packed.getvalue()


def damaged():
    """A byte in the middle of what is compressed is another."""
    packed = bytearray(as_npz(a=np.random.default_rng(0).dirichlet(np.ones(2), size=256)))
    packed[len(packed) // 2] ^= 0xFF
    return bytes(packed)


OPERATORS = MACHINE.tolist()
LOST = [[[1.0, 0.0], [0.0, 0.0]], [[0.5, 0.0], [0.0, 0.5]]]
BAD = {
    "rows that do not sum to one": ("json", lambda _: as_json({"kernel": [[0.5, 0.6]]}), "not a d"),
    "operators that do not": (
        "json",
        lambda _: as_json({"operators": (2 * MACHINE).tolist()}),
        "operators of a state.*not a distribution",
    ),
    "states never reached": (
        "json",
        lambda _: as_json({"operators": LOST, "start": [1.0, 0.0]}),
        "state 1 cannot be reached",
    ),
    "several vocabularies": (
        "json",
        lambda _: as_json({"kernel": FAIR}, {"kernel": [[0.2, 0.3, 0.5]]}),
        r"atoms over \[2, 3\] tokens",
    ),
    "machines and kernels of other vocabularies": (
        "json",
        lambda _: as_json({"kernel": [[0.2, 0.3, 0.5]]}, {"operators": OPERATORS}),
        r"atoms over \[2, 3\] tokens",
    ),
    "no number in JSON": ("json", lambda _: b'{"atoms": [{"kernel": [[NaN, 1]]}]}', "finite"),
    "no number": ("npz", lambda _: as_npz(a=np.array([[np.nan, 1.0]])), "not a distribution"),
    "no number in tensors": (
        "safetensors",
        lambda at: as_tensors(at, a=[[float("nan"), 1.0]]),
        "not a distribution",
    ),
    "JSON that is cut": ("json", lambda _: as_json({"kernel": FAIR})[:-9], "not JSON"),
    "npz that is cut": ("npz", lambda _: as_npz(a=np.array(STICKY))[:-30], "cut short"),
    "tensors that are cut": ("safetensors", lambda at: as_tensors(at, a=STICKY)[:-8], "cut short"),
    "npz that is damaged": ("npz", lambda _: damaged(), "cut short"),
    "nothing": ("npz", lambda _: b"", "cut short"),
    "no tensors": ("safetensors", lambda _: b"", "cut short"),
    "pickles": ("npz", lambda _: as_npz(a=np.array([{"a": 1}], dtype=object)), "expected numbers"),
    "a pickle": ("npz", lambda _: b"\x80\x04]\x94.", "cut short"),
    "text": ("npz", lambda _: as_npz(a=np.array([["a", "b"]])), "expected numbers"),
    "complex numbers": ("npz", lambda _: as_npz(a=np.array([[1j, 0]])), "expected numbers"),
    "truth values": ("safetensors", lambda at: as_tensors(at, a=[[True, False]]), "expected num"),
    "an archive that swells": ("npz", lambda _: a_bomb(), "an archive of 4,294,967,294 bytes"),
    "an array that boasts": ("npz", lambda _: a_boast(), "an array of shape"),
    "JSON too deep": ("json", lambda _: b'{"atoms": ' + b"[" * 5000 + b"]" * 5000 + b"}", "deep"),
    "a list": ("json", lambda _: b"[1, 2]", 'expected {"atoms"'),
    "other keys": ("json", lambda _: as_json({"kernal": FAIR}), "'kernal'"),
    "both": ("json", lambda _: as_json({"kernel": FAIR, "operators": OPERATORS}), "a kernel or"),
    "some weights": (
        "json",
        lambda _: as_json({"kernel": FAIR, "weight": 1.0}, {"kernel": FAIR}),
        "expected all or none",
    ),
    "one axis": ("safetensors", lambda at: as_tensors(at, a=[0.5, 0.5]), "has 1 axes"),
    "the start of nothing": (
        "safetensors",
        lambda at: as_tensors(at, **{"a": FAIR, "b.start": [1.0]}),
        "b.start is the start of nothing",
    ),
    "rows of no order": ("npz", lambda _: as_npz(a=np.full((3, 2), 0.5)), "a power of 2 rows"),
    "a name of two lines": (
        "safetensors",
        lambda at: as_tensors(at, **{"a\nb": [[0.5, 0.6]]}),
        "a b: row",
    ),
    "tables that multiply": (
        "npz",
        lambda _: as_npz(
            long=np.full((2**20, 2), 0.5), **{f"k{at}": np.array(FAIR) for at in range(99)}
        ),
        "tables of .* numbers",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_a_file_that_will_not_do_is_one_line(case, tmp_path, capsys):
    kind, made, match = BAD[case]
    file = tmp_path / f"bad.{kind}"
    file.write_bytes(made(tmp_path))
    with pytest.raises(InputError, match=match):
        open_process(f"mixture({file})")
    asked = ("evaluate", "--utility", "dyck", "--prompt", "01", "--horizon", "2")
    said = refused(capsys, *asked, "--model", f"exact:mixture({file})")
    assert said.startswith("posteer: ")


@pytest.mark.parametrize("name", ["absent.json", "absent.npz", "absent.safetensors", "folder.npz"])
def test_no_file(name, tmp_path):
    (tmp_path / "folder.npz").mkdir()
    with pytest.raises(InputError, match="no such file of atoms"):
        open_process(f"mixture({tmp_path / name})")


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_that_is_too_large_is_not_read(kind, tmp_path):
    """It has no bytes on the disk; its size is asked for first."""
    file = tmp_path / f"large.{kind}"
    with file.open("wb") as empty:
        empty.truncate(LARGEST_FILE + 1)
    with pytest.raises(InputError, match="larger than 1073741824 bytes"):
        open_process(f"mixture({file})")


def test_banks_of_atoms_change_with_the_file(tmp_path):
    file = tmp_path / "a.json"
    save_atoms(file, {"a": FAIR})
    one = posteer.open_model(f"exact:mixture({file})").fingerprint
    save_atoms(file, {"a": [[0.4, 0.6]]})
    assert posteer.open_model(f"exact:mixture({file})").fingerprint != one
