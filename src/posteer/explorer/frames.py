"""What is seen of a search, as small messages for a page.

Few of many steps are kept, the same whatever the load: all of the first, then such as are some
percent further on.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Callable
from typing import Any

from torch import Tensor

from posteer.core.shapes import Float
from posteer.explorer.menu import SHOWN
from posteer.methods.watching import Ascending, Candidates, Seen, Weighed

ALL_UNTIL, FURTHER = 30, 1.03
MOST_ENTRIES = 16
"""Of a latent's table; larger ones have no picture."""

Message = dict[str, Any]


class Thinned:
    """Which steps are kept: the first ones, then each a little further than the last kept."""

    def __init__(self) -> None:
        self.last = 0

    def keeps(self, step: int) -> bool:
        further = step <= ALL_UNTIL or step >= self.last * FURTHER
        if further:
            self.last = step
        return further


class Frames:
    """Makes messages of what a search shows and of its progress."""

    def __init__(self, send: Callable[[Message], None]) -> None:
        self.send = send
        self._steps, self._stages = Thinned(), dict[str, Thinned]()
        self._late: Message | None = None
        self._leader: list[int] | None = None
        self._tried = Thinned()

    def see(self, seen: Seen) -> None:
        if isinstance(seen, Weighed):
            self.send({"type": "latents", **packed_kernels(seen.kernels)})
        elif isinstance(seen, Ascending):
            self._ascending(seen)
        else:
            self.finish_ascent()
            self._candidates(seen)

    def progress(self, what: str, done: int, most: int) -> None:
        """A stage of the work: its first step, its last, few between."""
        kept = self._stages.setdefault(what, Thinned()).keeps(done)
        if kept or done >= most:
            self.send({"type": "progress", "what": what, "done": done, "most": most})

    def finish_ascent(self) -> None:
        """The last step of an ascent is shown, whichever it is."""
        if self._late is not None:
            self.send(self._late)
            self._late = None

    def _ascending(self, seen: Ascending) -> None:
        message = {
            "type": "ascent",
            "step": seen.step,
            "most": seen.most,
            "surrogate": figure(seen.surrogate),
            "ess": figure(seen.ess_fraction),
            "weights": packed_weights(seen.log_weights),
            "kernel": table_of(seen.transitions),
        }
        kept = self._steps.keeps(seen.step)
        self._late = None if kept else message
        if kept:
            self.send(message)

    def _candidates(self, seen: Candidates) -> None:
        leader = seen.prompts[0].tolist() if len(seen.prompts) else None
        news = leader != self._leader or self._tried.keeps(seen.tried)
        self._leader = leader
        if leader is None or not news:
            return
        self.send(
            {
                "type": "candidates",
                "snapped": seen.snapped,
                "tried": seen.tried,
                "prompts": seen.prompts.tolist(),
                "values": [figure(value) for value in seen.values.tolist()],
            }
        )


def figure(value: float) -> float | None:
    """To seven digits; None where it is no number."""
    return float(f"{value:.7g}") if math.isfinite(value) else None


def table_of(rows: Float[Tensor, "C V"]) -> list[list[float | None]] | None:
    """A prompt kernel that is small enough to be shown."""
    if rows.numel() > MOST_ENTRIES:
        return None
    return [[figure(round(p, 6)) for p in row] for row in rows.tolist()]


def packed_weights(log_weights: Float[Tensor, "L"]) -> str:
    """Square roots of the shown weights over the largest of all, a byte each."""
    shares = (log_weights - log_weights.max()).exp()[:SHOWN].sqrt()
    levels = (255 * shares.nan_to_num(0.0)).round().byte()
    return base64.b64encode(levels.cpu().numpy().tobytes()).decode()


def packed_kernels(kernels: Float[Tensor, "L C V"]) -> Message:
    """The first latents of an ascent, as the page's pictures take them."""
    contexts, vocab = kernels.shape[1:]
    if contexts * vocab > MOST_ENTRIES:
        return {"kernels": None, "of": len(kernels)}
    some = kernels[:SHOWN].float().cpu().contiguous().numpy().astype("<f4")
    return {
        "kernels": base64.b64encode(some.tobytes()).decode(),
        "of": len(kernels),
        "shown": len(some),
        "vocab": vocab,
        "order": round(math.log(contexts, vocab)),
    }
