"""A sweep small enough to be run often: 48 runs in about a second."""

from posteer.sweeps.configuration import config_from

SMALL = {
    "name": "tiny",
    "models": ["exact:urn", "exact:beta-bernoulli"],
    "utilities": ["dyck", "frequency(0.3)"],
    "methods": ["ppt-rb-analytic(samples=60,steps=12)", "coordinate"],
    "lengths": [3, 4],
    "seeds": 3,
}
BATCH = 2


def small(**changes):
    return config_from({**SMALL, **changes}, "test")


def toml(**values):
    def shown(value):
        if isinstance(value, list):
            return "[" + ", ".join(map(shown, value)) + "]"
        return f'"{value}"' if isinstance(value, str) else str(value)

    return "\n".join(f"{key} = {shown(value)}" for key, value in values.items())
