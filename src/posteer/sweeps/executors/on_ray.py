"""Tasks of Ray Core: each is a worker, and Ray starts one again whose process or machine has died.

Without an address a cluster is started here and ends with the command. No dashboard is started, a
cluster that asks for no token is refused, and what goes through Ray is the text of an order and at
most a line in return: results are in the job's files.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from posteer.core.errors import InputError, require
from posteer.core.leases import Terms
from posteer.core.spec import Spec, within
from posteer.sweeps.executors.protocol import Work, carry_out, order, remote, terms_in
from posteer.sweeps.executors.watching import attend

SETTINGS = {"address": "", "cpus": 1, "gpus": 0, "gigabytes": 0, "retries": 100}
OBJECT_STORE_BYTES = 100 * 2**20
LONGEST_COMPLAINT = 2000


def carry_out_order(text: str) -> str | None:
    """What Ray calls in a worker."""
    complaint = carry_out(text)
    return None if complaint is None else complaint[:LONGEST_COMPLAINT]


class Ray:
    """The executor."""

    def prepare(self, spec: Spec) -> Terms:
        terms, _ = _settings(spec)
        _library()
        return terms

    def place(self, spec: Spec, device: str) -> str:
        return remote(device, _settings(spec)[1]["gpus"])

    def __call__(self, work: Work) -> None:
        ray, found = _library(), _settings(work.spec)[1]
        look = work.job.watch(work.report)
        with _connected(ray, found, work.workers):
            memory = found["gigabytes"] * 2**30
            task = ray.remote(carry_out_order).options(
                num_cpus=found["cpus"],
                num_gpus=found["gpus"],
                memory=memory or None,
                max_retries=found["retries"],
                scheduling_strategy="SPREAD",
            )
            orders = [order(work, at, found["cpus"]) for at in range(work.workers)]
            tasks = _Tasks(ray, [task.remote(text) for text in orders])
            try:
                attend(look, tasks.at_work, tasks.complaints)
            finally:
                tasks.cancel()


run = Ray()


class _Tasks:
    """Workers of Ray: those that are at work, and what the others said."""

    def __init__(self, ray: Any, waiting: list[Any]) -> None:
        self.ray, self.waiting = ray, waiting
        self.said: list[str] = []

    def at_work(self) -> bool:
        ended, self.waiting = self.ray.wait(
            self.waiting, num_returns=len(self.waiting), timeout=0, fetch_local=False
        )
        for one in ended:
            try:
                complaint = self.ray.get(one)
            except self.ray.exceptions.RayTaskError:
                raise
            except self.ray.exceptions.RayError:  # killed once too often: others go on, or nobody
                continue
            if complaint is not None:
                self.said.append(complaint)
        return bool(self.waiting)

    def complaints(self) -> list[str]:
        return self.said

    def cancel(self) -> None:
        for one in self.waiting:
            self.ray.cancel(one, force=True)


def _settings(spec: Spec) -> tuple[Terms, dict[str, Any]]:
    terms, found = terms_in(spec, **SETTINGS)
    for name in ("cpus", "gpus", "gigabytes", "retries"):
        within(found[name], f"ray: {name}", 1 if name == "cpus" else 0, 10**6)
    text = isinstance(found["address"], str)
    require(text, f"ray: address {found['address']}: expected such as auto or a host and port")
    return terms, found


@contextmanager
def _connected(ray: Any, found: dict[str, Any], workers: int) -> Iterator[None]:
    """To a cluster that is there, or to one of our own for the time of the block."""
    if ray.is_initialized():
        _require_token()
        yield
        return
    try:
        if found["address"]:
            ray.init(address=found["address"], log_to_driver=False)
        else:
            _bring_token()
            ray.init(
                address="local",
                num_cpus=workers * found["cpus"],
                include_dashboard=False,
                object_store_memory=OBJECT_STORE_BYTES,
                log_to_driver=False,
            )
    except Exception as error:  # of a node that is slow to start Ray says so by a bare one
        why = str(error).splitlines()[0]
        raise InputError(f"no Ray at '{found['address'] or 'local'}': {why}") from error
    try:
        _require_token()
        yield
    finally:
        ray.shutdown()


def _bring_token() -> None:
    """A token for a cluster of our own, which nobody else needs to know."""
    known = {"RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"} & os.environ.keys()
    if not known and not (Path.home() / ".ray" / "auth_token").exists():
        os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)


def _require_token() -> None:
    """Whoever reaches a Ray cluster runs code on it: one that asks for no token is not used."""
    from ray._raylet import AuthenticationMode, get_authentication_mode

    on = get_authentication_mode() == AuthenticationMode.TOKEN
    require(on, "this Ray asks for no token: set RAY_AUTH_MODE=token where it is started and here")


def _library() -> Any:
    """Ray, told to ask for tokens before it is loaded."""
    mode = os.environ.setdefault("RAY_AUTH_MODE", "token")
    require(mode == "token", f"RAY_AUTH_MODE is '{mode}': expected token, or unset")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
    except ImportError as error:
        raise InputError("Ray is not installed: pip install 'posteer[ray]'") from error
    return ray
