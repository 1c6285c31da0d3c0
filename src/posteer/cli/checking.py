"""`posteer check`: is a model a Bayes filter, and if not, how far from one?"""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from posteer.cli.loading import loading
from posteer.cli.options import (
    Alphabet,
    AsJson,
    Context,
    Device,
    DrawSeconds,
    FileOrNone,
    Model,
    OpeningText,
    Whole,
    WholeOrNone,
    print_json,
)
from posteer.core.errors import require
from posteer.core.limits import DRAW_SECONDS


def check(
    *,
    model: Model = "urn",
    bank: Annotated[
        FileOrNone, Parameter(help="A bank of the model; drawn for the check where none is given.")
    ] = None,
    rollouts: Annotated[WholeOrNone, Parameter(help="Latents to draw.")] = None,
    length: Annotated[WholeOrNone, Parameter(help="Tokens of each rollout.")] = None,
    seconds: DrawSeconds = DRAW_SECONDS,
    context: Context = "",
    effort: Annotated[float, Parameter(help="How much is asked of the model, a multiple.")] = 1.0,
    families: Annotated[
        bool, Parameter(help="Fit all families of latents to rollouts: the longest part.")
    ] = True,
    seed: Annotated[Whole, Parameter(help="Seed of the draw and of the checks.")] = 0,
    figure: Annotated[
        FileOrNone, Parameter(help="Draw what was found: .svg, .pdf or .png.")
    ] = None,
    device: Device = "auto",
    alphabet: Alphabet = None,
    text: OpeningText = "",
    as_json: AsJson = False,
) -> None:
    """Test whether a model predicts by Bayes' rule over its latents, and how far off it is."""
    with loading():
        from posteer.banks import sampling
        from posteer.banks.checks import report as checks
        from posteer.banks.drawn import load_bank
        from posteer.models import open_model
        from posteer.views.figures import canvas as figures
        from posteer.views.terminal import banks
        from posteer.views.terminal import panels as console

    sizes = rollouts is not None or length is not None
    require(bank is None or not sizes, "--bank has its own size: leave --rollouts and --length out")
    require(bank is None or not context, "--bank has its own context: leave --context out")
    if figure is not None:
        figures.check_path(figure)
    settings = checks.CheckSettings(effort=effort, seed=seed, families=families)
    opened = open_model(model, device, alphabet=alphabet, text=text)
    with console.delayed_progress() as progress:
        if bank is None:
            held = sampling.sample(
                opened,
                rollouts=rollouts,
                length=length,
                seconds=seconds,
                seed=seed,
                context=context,
                tuned=sampling.tunes(opened),
                progress=progress,
            )
        else:
            held = load_bank(bank)
        if figure is not None:
            from posteer.views.figures.checks import require_drawable

            require_drawable(held.latents.family)
        report = checks.check_filter(opened, held, settings, progress)
    where = None if bank is None else str(bank)
    if figure is not None:
        from posteer.views.figures.checks import draw_checks

        draw_checks(report, held, figure)
    if as_json:
        print_json({**banks.bank_facts(held, where), "check": report.to_json()})
        return
    banks.show_bank(held, where)
    banks.show_report(report)
