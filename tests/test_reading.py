"""JSON and TOML from others: bounded, and refused in one line."""

import pytest

from posteer.core.errors import InputError
from posteer.core.reading import DEEPEST, read_json, read_toml


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[" * 100_000, "brackets more than 32 deep"),
        ("[" * 33 + "]" * 33, "brackets more than 32 deep"),
        ('{"a":' * 5000 + "1" + "}" * 5000, "brackets more than 32 deep"),
        ("9" * 5000, "not JSON"),
        ("-" + "9" * 41, "more than 40 digits"),
        ("NaN", "nan is not a finite number"),
        ("[1e999]", "inf is not a finite number"),
        ("{", "not JSON"),
        (b"\xff\xfe\xfa", "not JSON"),
    ],
)
def test_hostile_json_is_refused_by_name(text, complaint):
    with pytest.raises(InputError, match=complaint) as refused:
        read_json(text, "x.json")
    assert str(refused.value).startswith("x.json: ")
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("a = " + "[" * 5000, "brackets more than 32 deep|not TOML"),
        ("a = " + "[" * 40 + "]" * 40, "brackets more than 32 deep"),
        ("a" + ".a" * 40 + " = 1", "brackets more than 32 deep"),
        ("a = " + "9" * 5000, "not TOML"),
        ("a = inf", "inf is not a finite number"),
        ("a = ", "not TOML"),
        (b"a = '\xff'", "not TOML"),
    ],
)
def test_hostile_toml_is_refused_by_name(text, complaint):
    with pytest.raises(InputError, match=complaint):
        read_toml(text, "x.toml")


def test_what_is_within_bounds_is_read():
    assert read_json("[" * DEEPEST + "]" * DEEPEST, "x") is not None
    assert read_json('{"seed": 9007199254740993}', "x") == {"seed": 9007199254740993}
    assert read_toml("[[grid]]\nseeds = 3", "x") == {"grid": [{"seeds": 3}]}
