"""Leases: one holder at a time, whom time may replace but whose decision nothing repeats."""

import contextlib
import errno
import os

import pytest

from posteer.core import locks
from posteer.core.claiming import Claiming
from posteer.core.errors import InputError
from posteer.core.leases import Leases, Terms
from posteer.core.locks import Claims


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def pair(tmp_path, clock):
    """Two workers at one folder, as on two machines."""
    return [Leases(tmp_path / "leases", Terms(10.0, clock)) for _ in range(2)]


def litter(folder):
    return sorted(path.relative_to(folder) for path in folder.rglob("*"))


def test_one_holder_at_a_time(pair, tmp_path):
    first, second = pair
    assert first.take("a") and not second.take("a") and not first.take("a") and second.take("b")
    first.release("a")
    assert second.take("a") and not first.take("a")
    second.release("a")
    second.release("b")
    assert litter(tmp_path / "leases") == []


def test_a_holder_that_shows_life_keeps_it_however_long(pair, clock):
    first, second = pair
    first.take("a")
    for _ in range(5):
        assert not second.take("a")
        clock.now += 9.0
        first.beat()
    assert not second.take("a") and first.holds("a")


def test_one_that_shows_none_for_a_lease_loses_it(pair, clock):
    """The time counts from when it was first seen so: clocks of machines are not compared."""
    first, second = pair
    first.take("a")
    clock.now += 1000.0
    assert not second.take("a"), "seen for the first time"
    clock.now += 9.9
    assert not second.take("a")
    clock.now += 0.1
    assert second.take("a") and second.holds("a") and not first.holds("a")
    first.beat()
    first.release("a")
    assert second.holds("a"), "what was lost is not the loser's to give back"


def overtaken(first, second, clock, key="a"):
    assert first.take(key) and not second.take(key)
    clock.now += 10.0
    assert second.take(key)


def test_who_lost_a_claim_cannot_publish(pair, clock, tmp_path):
    first, second = pair
    overtaken(first, second, clock)
    target = tmp_path / "result"
    assert not first.publish("a", target, b"late") and not target.exists()
    assert second.publish("a", target, b"in time") and target.read_bytes() == b"in time"
    assert litter(tmp_path / "leases") == [] and list(tmp_path.glob(".*")) == []


def test_what_was_published_before_it_was_lost_stands(pair, clock, tmp_path):
    first, second = pair
    target = tmp_path / "result"
    assert first.take("a") and not second.take("a")
    assert first.publish("a", target, b"first")
    clock.now += 10.0
    assert second.take("a"), "it is free: whoever takes it looks at the result first"
    assert target.read_bytes() == b"first"


class Killed(BaseException):
    pass


@pytest.mark.parametrize("step", range(10))
def test_killed_at_any_step_of_publishing_all_or_nothing_is_there(
    pair, clock, tmp_path, step, monkeypatch
):
    """Between any two changes of the folder: the other finishes what was decided, or takes over."""
    first, second = pair
    target, left = tmp_path / "result", [step]

    def counted(change):
        def counting(*arguments, **more):
            if left[0] == 0:
                raise Killed
            left[0] -= 1
            return change(*arguments, **more)

        return counting

    assert first.take("a")
    with monkeypatch.context() as patched:
        for name in ("rename", "replace", "unlink", "rmdir", "fsync"):
            patched.setattr(os, name, counted(getattr(os, name)))
        with contextlib.suppress(Killed):
            first.publish("a", target, b"first")
    second.finish("a", target)
    decided = target.exists()
    mine = second.take("a")
    clock.now += 10.0
    assert mine or second.take("a")
    assert target.exists() == decided
    assert decided or second.publish("a", target, b"second")
    assert target.read_bytes() == (b"first" if decided else b"second")


def test_the_steps_of_publishing_are_those_that_are_tried(pair, tmp_path, monkeypatch):
    """Fewer than there are parameters above: the last of them is killed by nothing."""
    first, _ = pair
    steps = []
    for name in ("rename", "replace", "unlink", "rmdir", "fsync"):
        change = getattr(os, name)
        monkeypatch.setattr(os, name, lambda *a, _c=change, **m: (steps.append(_c), _c(*a, **m))[1])
    first.take("a")
    steps.clear()
    first.publish("a", tmp_path / "result", b"first")
    assert len(steps) == 9


def claiming(folder, clock, leased):
    terms = Terms(10.0, clock) if leased else None
    return Claiming(folder / "claims", folder / "leases", terms, clock)


@pytest.mark.parametrize("leased", [True, False])
def test_locks_and_leases_respect_each_other(tmp_path, clock, leased):
    one, other = claiming(tmp_path, clock, leased), claiming(tmp_path, clock, not leased)
    with one.claim("a") as mine:
        assert mine
        with other.claim("a") as theirs, other.claim("b") as free:
            assert not theirs and free
    with other.claim("a") as theirs:
        assert theirs


def test_locks_take_over_from_a_dead_lease_and_finish_what_it_decided(tmp_path, clock):
    by_locks, by_leases = claiming(tmp_path, clock, False), claiming(tmp_path, clock, True)
    assert by_leases.leases.take("a")
    with by_locks.claim("a") as mine:
        assert not mine
    clock.now += 10.0
    with by_locks.claim("a") as mine:
        assert mine and not by_leases.holds("a")
    with by_locks.claim("a", wait=True) as mine:
        assert mine and not by_leases.publish("a", tmp_path / "result", b"late")


def test_a_file_system_without_locks(tmp_path, clock, monkeypatch):
    """Refused in one line that says what to do; leases need none."""

    def refuse(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(locks.fcntl, "lockf", refuse)
    with pytest.raises(InputError, match="no locks: `executor` shared"):
        Claims(tmp_path / "claims").claim("a").__enter__()
    one, other = claiming(tmp_path, clock, True), claiming(tmp_path, clock, True)
    with one.claim("a") as mine, other.claim("a") as theirs:
        assert mine and not theirs


def test_signs_of_life_come_from_a_thread(tmp_path):
    """Waited for, not slept for: another sees them."""
    leases = Leases(tmp_path / "leases", Terms(0.01))
    leases.take("a")
    (sign,) = (path for path in (tmp_path / "leases").rglob("*") if path.is_file())
    before = sign.read_bytes()
    with leases.beating():
        while sign.read_bytes() == before:
            pass
    assert leases.holds("a")


def test_litter_of_killed_placings_goes_in_time(tmp_path):
    folder = tmp_path / "leases"
    for name in ("old", "new"):
        (folder / f".{name}").mkdir(parents=True)
        (folder / f".{name}" / "token").touch()
    os.utime(folder / ".old", (0, 0))
    Leases(folder).tidy()
    assert [path.name for path in folder.iterdir()] == [".new"]
