"""`posteer models`, `posteer methods`, `posteer utilities`, `posteer completion`."""

from __future__ import annotations

import sys
from typing import Annotated, Any, Literal

from cyclopts import App, Parameter

from posteer.cli.loading import loading
from posteer.cli.options import AsJson, print_json
from posteer.core.registry import Registry

Only = Annotated[str | None, Parameter(help="This one alone.")]
Shell = Annotated[
    Literal["bash", "zsh", "fish"], Parameter(help="The shell that the script is for.")
]


def models(
    *,
    verbose: Annotated[
        bool, Parameter(negative="", help="What each can do, and every other kind of model.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """The trained models inside the package, checked against their hashes."""
    with loading():
        from posteer.models import abilities, kinds_of_models, model_facts, shipped_models
        from posteer.views.terminal import models as console

    facts = [model_facts(folder) for folder in shipped_models().values()]
    if verbose:
        facts = [{**fact, "can": abilities(str(fact["name"]))} for fact in facts]
    kinds = kinds_of_models() if verbose else []
    if as_json:
        print_json({"models": facts, "kinds": kinds} if verbose else facts)
        return
    console.show_models(facts)
    if verbose:
        console.show_abilities(facts, kinds)


def methods(name: Only = None, /, *, as_json: AsJson = False) -> None:
    """Every method by name: what it does, its settings, a command that runs it."""
    with loading():
        from posteer.methods.registry import METHODS
        from posteer.views.catalogue import methods_in_words
        from posteer.views.terminal.catalogue import show_catalogue

    found = methods_in_words(_chosen(METHODS, name))
    if as_json:
        print_json({"methods": found})
    else:
        show_catalogue(found)


def utilities(name: Only = None, /, *, as_json: AsJson = False) -> None:
    """Every utility by name: what it is, its settings, a command that uses it."""
    with loading():
        from posteer.goals.utilities import UTILITIES
        from posteer.views.catalogue import YOUR_OWN, utilities_in_words
        from posteer.views.terminal.catalogue import show_catalogue

    found = utilities_in_words(_chosen(UTILITIES, name))
    if as_json:
        print_json({"utilities": found})
        return
    show_catalogue(found)
    if name is None:
        print(YOUR_OWN)


def _chosen(registry: Registry[Any], name: str | None) -> list[str]:
    """All names, or the one that is asked for, which must be there."""
    if name is None:
        return registry.names()
    registry[name]
    return [name]


def completion_of(app: App) -> None:
    """Let a command line print what makes a shell complete it."""

    @app.command
    def completion(shell: Shell = "bash", /) -> None:
        """Print a script that makes the shell complete posteer's commands and options.

        bash: `posteer completion bash > ~/.local/share/bash-completion/completions/posteer`
        """
        sys.stdout.write(app.generate_completion(shell=shell))
