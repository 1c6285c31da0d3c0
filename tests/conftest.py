"""Shapes written in annotations are enforced while tests run."""

from jaxtyping import install_import_hook

# Must run before any test module imports posteer.
install_import_hook("posteer", "beartype.beartype")
