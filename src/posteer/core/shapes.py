"""Shape annotations: checked while tests run, free otherwise.

The numeric core must run where only torch, numpy and safetensors are installed, so jaxtyping is
optional: without it `Float[Tensor, "L C V"]` is just `Tensor`.

Axis letters: B runs or batch, L latents, C contexts, V tokens of the vocabulary, N horizon, T time,
S states of a finite-state utility, K candidates or classes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jaxtyping import Bool as Bool
    from jaxtyping import Float as Float
    from jaxtyping import Int as Int
else:
    try:
        from jaxtyping import Bool, Float, Int
    except ImportError:

        class _Unchecked:
            def __class_getitem__(cls, annotation: tuple[Any, str]) -> Any:
                return annotation[0]

        Bool = Float = Int = _Unchecked

__all__ = ["Bool", "Float", "Int"]
