"""Finished chunks of a draw, kept so that an interrupted one goes on."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from posteer.banks.drawn import pack, unpack
from posteer.banks.probes import Probe
from posteer.core import InputError, Int, require
from posteer.core.files import SOLVED, clean_leftovers, remove_folder, write_atomically
from posteer.core.locks import Claims


@dataclass(frozen=True, eq=False)
class Rollouts:
    """Counts of some rollouts at the end and at the snapshots, and their tokens if asked for.

    `probe` is of those that are among the first of all, where the model may change.
    """

    counts: Int[Tensor, "L ..."]
    snapshots: dict[int, Int[Tensor, "L ..."]]
    sequences: Int[Tensor, "L R"] | None
    probe: Probe | None = None

    def tensors(self) -> dict[str, Tensor]:
        named = {"counts": self.counts}
        named |= {f"counts_at_{length}": counts for length, counts in self.snapshots.items()}
        if self.probe is not None:
            named |= self.probe.tensors()
        return named if self.sequences is None else named | {"sequences": self.sequences}

    @staticmethod
    def join(parts: list[dict[str, Tensor]], lengths: list[int]) -> Rollouts:
        def joined(name: str) -> Tensor:
            return torch.cat([part[name] for part in parts])

        return Rollouts(
            joined("counts"),
            {length: joined(f"counts_at_{length}") for length in lengths},
            joined("sequences") if "sequences" in parts[0] else None,
            Probe.join([Probe.of(part) for part in parts]),
        )


_CHUNK = re.compile(r"(\d{9,})-(\d{9,})\.safetensors")
KEYS = {"key": str, "first": int, "count": int, "seconds": float, "tokens": int}
"""What is written with each chunk."""


def folder_of(out: Path) -> Path:
    """Where the chunks of a bank are kept until it is whole."""
    return out.with_name(f"{out.name}.parts")


def chunk_name(first: int, count: int) -> str:
    """The file of so many rollouts from the first on."""
    return f"{first:09d}-{first + count:09d}.safetensors"


def chunks_in(folder: Path) -> list[tuple[int, int]]:
    """Where each chunk in a folder begins and ends, by its name."""
    found = [_CHUNK.fullmatch(path.name) for path in folder.glob("*.safetensors")]
    return sorted((int(one[1]), int(one[2])) for one in found if one is not None)


def _is_ours(name: str) -> bool:
    ours = _CHUNK.fullmatch(name) or SOLVED.fullmatch(name)
    return name == "lock" or ours is not None


class Parts:
    """Finished chunks of a draw: in a folder beside the bank, or in memory without one."""

    def __init__(self, out: Path | None, key: str, exclusive: bool = True) -> None:
        self.folder = None if out is None else folder_of(out)
        self.out, self.key = out, key
        self.exclusive = exclusive  # else whoever draws has claimed it otherwise
        self.length: int | None = None  # of rollouts, where a draw found it out
        self.held: dict[tuple[int, int], tuple[dict[str, Tensor], float, int]] = {}
        self._claimed: ExitStack | None = None

    def __enter__(self) -> Parts:
        try:
            if self.folder is not None and self.folder.is_dir():
                self._claim(self.folder)
                assert self.out is not None
                clean_leftovers(self.folder, _is_ours)
                clean_leftovers(self.out.parent, self.out.name.__eq__)
                for path in sorted(self.folder.iterdir()):
                    if _CHUNK.fullmatch(path.name):
                        self._read(path)
        except BaseException:
            self._release()
            raise
        return self

    def __exit__(self, *_error: object) -> None:
        self._release()

    def _release(self) -> None:
        if self._claimed is not None:
            self._claimed.close()
            self._claimed = None

    def _claim(self, folder: Path) -> None:
        """One draw at a time: two would draw the same rollouts."""
        if self._claimed is None and self.exclusive:
            self._claimed = ExitStack()
            mine = self._claimed.enter_context(Claims(folder / "lock").claim("draw"))
            require(mine, f"another process is drawing into {folder}")

    def _read(self, path: Path) -> None:
        try:
            tensors, facts = unpack(path)
        except InputError:
            path.unlink()  # cut short by a crash of the machine: drawn again
            return
        known = all(type(facts.get(name)) is kind for name, kind in KEYS.items())
        known = known and type(facts.get("rollout_length", 0)) is int and facts["first"] >= 0
        require(known, f"{path} is no part of a draw: move it away, or choose another `out`")
        require(
            facts["key"] == self.key,
            f"{self.folder} holds an unfinished draw with other settings: remove it, or choose "
            "another `out`",
        )
        first, count = facts["first"], facts["count"]
        overlaps = any(first < a + n and a < first + count for a, n in self.held)
        if overlaps or len(tensors.get("counts", ())) != count:
            path.unlink()  # of a draw with other chunks: what it held is here already, or is redone
            return
        self.held[first, count] = (tensors, facts["seconds"], facts["tokens"])
        self.length = facts.get("rollout_length", self.length)

    @property
    def n_held(self) -> int:
        """How many rollouts are here."""
        return sum(count for _, count in self.held)

    def missing(self, total: int, size: int) -> Iterator[tuple[int, int]]:
        """Ranges of rollouts that no chunk holds yet, at most `size` at a time."""
        at = 0
        for first, count in [*sorted(self.held), (total, 0)]:
            while at < first:
                n = min(size, first - at)
                yield at, n
                at += n
            at = first + count

    def keep(self, first: int, count: int, done: Rollouts, seconds: float, tokens: int) -> None:
        tensors = {name: tensor.cpu() for name, tensor in done.tensors().items()}
        self.held[first, count] = (tensors, seconds, tokens)
        if self.folder is not None:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._claim(self.folder)
            write_atomically(self.folder / chunk_name(first, count), self.chunk(first, count))

    def chunk(self, first: int, count: int) -> bytes:
        """The file of a chunk that is held."""
        tensors, seconds, tokens = self.held[first, count]
        facts = {"key": self.key, "first": first, "count": count}
        facts |= {"seconds": seconds, "tokens": tokens}
        if self.length is not None:
            facts["rollout_length"] = self.length
        return pack(tensors, facts)

    def probe(self) -> Probe | None:
        """What the model predicted when the first chunks were drawn."""
        return Probe.join([Probe.of(self.held[at][0]) for at in sorted(self.held)])

    def all(self, lengths: list[int]) -> tuple[Rollouts, float, int]:
        """Everything joined in order, with the seconds and tokens all of it took."""
        parts = [self.held[at] for at in sorted(self.held)]
        try:
            rollouts = Rollouts.join([part[0] for part in parts], lengths)
        except (KeyError, RuntimeError) as error:
            raise InputError(f"{self.folder}: its parts do not fit together: remove it") from error
        return rollouts, sum(part[1] for part in parts), sum(part[2] for part in parts)

    def clear(self) -> None:
        if self.folder is not None:
            remove_folder(self.folder, _is_ours)
        self._release()


def checked_path(out: Path) -> Path:
    """The file of a bank that is to be drawn, refused where it could not be written."""
    require(not out.is_dir(), f"{out} is a folder: expected a file for the bank")
    require(out.parent.is_dir(), f"{out}: there is no folder {out.parent}")
    return out
