"""The command line: parse, call one function, print. torch loads only when a command runs."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from io import TextIOWrapper
from typing import Annotated, Any, NoReturn

from cyclopts import App, CycloptsError, Parameter

from posteer import __version__
from posteer.cli import checking, listing, pages, sweep, trainings
from posteer.cli.loading import loading
from posteer.cli.options import (
    Alphabet,
    AsJson,
    AskedOnce,
    AskedToCompare,
    Context,
    Device,
    DrawSeconds,
    Executor,
    File,
    FileOrNone,
    Horizon,
    Model,
    OpeningText,
    Rank,
    Schedule,
    Shape,
    UtilityName,
    Verbose,
    View,
    Whole,
    WholeOrNone,
    Workers,
    print_json,
)
from posteer.core.calls import one_call
from posteer.core.errors import InputError, Interrupted, in_options, require
from posteer.core.limits import COMPARED, DRAW_SECONDS

app = App(
    name="posteer",
    version=__version__,
    help="Find prompts that steer sequence models, by what a prompt makes a model believe.",
    suppress_keyboard_interrupt=False,  # `main` says how to go on
)


ONE_SEARCH, A_COMPARISON = AskedOnce(), AskedToCompare()
A_SHAPE, A_SCHEDULE = Shape(), Schedule()
"""What is asked where nothing is said."""


def show(record: Any, view: str, as_json: bool) -> None:
    """A record as it was asked for."""
    from posteer.views import VIEWS

    VIEWS["json" if as_json else view](record)


@app.command
def elicit(
    asked: AskedOnce = ONE_SEARCH,
    *,
    verbose: Verbose = False,
    view: View = "panel",
    as_json: AsJson = False,
) -> None:
    """Find a prompt after which the model's continuations have high utility."""
    with loading():
        from posteer.api import elicit as find
        from posteer.views import VIEWS
        from posteer.views.terminal import panels as console

    VIEWS[view]  # an unknown one is refused before anything runs
    with console.delayed_progress() as progress:
        found = find(**asked.given(), progress=progress)
    show(found, "details" if verbose else view, as_json)


@app.command
def compare(
    asked: AskedToCompare = A_COMPARISON,
    *,
    methods: Annotated[
        str, Parameter(help="Comma-separated, settings in brackets: auto,gcg(steps=200).")
    ] = ",".join(COMPARED),
    seeds: Annotated[Whole, Parameter(help="Runs of each method.")] = 10,
    amortise: Annotated[
        Whole, Parameter(help="Utilities that share the cost of a bank in table and figure.")
    ] = 51,
    figure: Annotated[
        FileOrNone, Parameter(help="Best utility against tokens: .svg, .pdf or .png.")
    ] = None,
    view: View = "panel",
    as_json: AsJson = False,
) -> None:
    """Methods side by side: what they find, what they cost, when a bank pays for itself."""
    with loading():
        from posteer.api import compare as beside
        from posteer.core.spec import split_names
        from posteer.results import trajectory
        from posteer.views import VIEWS
        from posteer.views.figures import canvas as figures
        from posteer.views.terminal import panels as console

    VIEWS[view]
    if figure is not None:
        figures.check_path(figure)
    with console.delayed_progress() as progress:
        found = beside(
            **asked.given(),
            methods=split_names(methods),
            seeds=seeds,
            amortised_over=amortise,
            progress=progress,
        )
    if figure is not None:
        from posteer.views.figures.compare import draw_trajectories

        paths = {
            summary.method: [trajectory(run, amortise) for run in summary.runs]
            for summary in found.methods
        }
        title = f"{asked.utility} from {asked.model}, length {asked.length}"
        draw_trajectories(paths, title, found.optimum, figure)
    show(found, view, as_json)


@app.command
def evaluate(
    *,
    model: Model = "exact:urn",
    utility: UtilityName = "dyck",
    prompt: Annotated[
        str, Parameter(help="Tokens such as 010101; comma-separated past ten symbols.")
    ],
    horizon: Horizon = 4,
    seed: Annotated[Whole, Parameter(help="Seed of Monte Carlo rollouts, if any are needed.")] = 0,
    context: Context = "",
    rank: Rank = None,
    device: Device = "auto",
    alphabet: Alphabet = None,
    text: OpeningText = "",
    view: View = "panel",
    as_json: AsJson = False,
) -> None:
    """The expected utility of a given prompt, and its rank among all prompts of its length."""
    with loading():
        from posteer.api import evaluate as judge
        from posteer.views import VIEWS
        from posteer.views.terminal import panels as console

    VIEWS[view]
    asked: dict[str, Any] = {"horizon": horizon, "seed": seed, "context": context, "rank": rank}
    asked |= {"alphabet": alphabet, "text": text}
    with console.delayed_progress() as progress:
        judged = judge(model, utility, prompt, **asked, device=device, progress=progress)
    show(judged, view, as_json)


@app.command
def sample(
    *,
    model: Model = "urn",
    rollouts: Annotated[
        WholeOrNone, Parameter(help="Latents to draw: 5000, or what --seconds allow.")
    ] = None,
    length: Annotated[
        WholeOrNone, Parameter(help="Tokens of each rollout: 2000, or what --seconds allow.")
    ] = None,
    seconds: DrawSeconds = DRAW_SECONDS,
    out: Annotated[
        FileOrNone, Parameter(help="File of the bank; the same command resumes a draw.")
    ] = None,
    seed: Annotated[Whole, Parameter(help="Seed of the draw.")] = 0,
    context: Annotated[
        str, Parameter(help="Observed tokens such as 0110: draw the posterior after them.")
    ] = "",
    unvisited: Annotated[
        str,
        Parameter(help="Rows a rollout never reached: donor, uniform, predictive or dirichlet."),
    ] = "donor",
    family: Annotated[
        str | None,
        Parameter(
            help="What the latents are, if not what the model says: markov(order=2), "
            "hmm(states=3), hmm, or atoms of its known prior."
        ),
    ] = None,
    chunk: Annotated[
        WholeOrNone, Parameter(help="Rollouts at a time; as many as the memory takes by default.")
    ] = None,
    keep_tokens: Annotated[
        bool, Parameter(negative="", help="Keep the rollouts themselves in the bank.")
    ] = False,
    check: Annotated[
        bool, Parameter(negative="", help="Test whether the model predicts by Bayes' rule.")
    ] = False,
    effort: Annotated[float, Parameter(help="Work of --check, as a multiple.")] = 1.0,
    figure: Annotated[
        FileOrNone, Parameter(help="Draw what --check found: .svg, .pdf or .png.")
    ] = None,
    device: Device = "auto",
    workers: Workers = 1,
    executor: Executor = "local",
    alphabet: Alphabet = None,
    text: OpeningText = "",
    as_json: AsJson = False,
) -> None:
    """Let a model write texts by itself and read its latents off them: a bank for `elicit`.

    The paper calls this predictive Monte Carlo.
    """
    with loading():
        from posteer.banks import sampling
        from posteer.banks.checks import report as checks
        from posteer.models import open_model
        from posteer.views.figures import canvas as figures
        from posteer.views.terminal import banks
        from posteer.views.terminal import panels as console

    require(out is not None or check, "expected --out FILE for the bank, or --check")
    require(figure is None or check, "--figure shows what --check found: give both")
    if figure is not None:
        figures.check_path(figure)
    settings = checks.CheckSettings(effort=effort, seed=seed)
    opened = open_model(model, device, alphabet=alphabet, text=text)
    if figure is not None:
        from posteer.views.figures.checks import require_drawable

        require_drawable(sampling.family_drawn(opened, family))
    with console.delayed_progress() as progress:
        by = None
        if executor != "local" or workers != 1:
            from posteer.sweeps.drawing import DrawnBy

            require(out is not None, "workers share a draw by its file: expected --out")
            by = DrawnBy(executor, workers, model, device, alphabet, text, progress)
        bank = sampling.sample(
            opened,
            rollouts=rollouts,
            length=length,
            seconds=seconds,
            seed=seed,
            context=context,
            unvisited=unvisited,
            family=family,
            keep_tokens=keep_tokens,
            out=out,
            chunk=chunk,
            progress=progress,
            drawn_by=by,
        )
        report = checks.check_filter(opened, bank, settings, progress) if check else None
    where = None if out is None else str(out)
    if report is not None and figure is not None:
        from posteer.views.figures.checks import draw_checks

        draw_checks(report, bank, figure)
    if as_json:
        found = None if report is None else report.to_json()
        print_json({**banks.bank_facts(bank, where), "check": found})
        return
    banks.show_bank(bank, where)
    if report is not None:
        banks.show_report(report)


@app.command
def train(
    *,
    out: Annotated[File, Parameter(help="Folder of the run; the same command resumes it.")],
    preset: Annotated[
        str | None,
        Parameter(
            help="beta-bernoulli and urn (the paper's), ternary, second-order, mess3-mixture, "
            "chains-16, chains-1024, ginc, or tiny."
        ),
    ] = None,
    process: Annotated[
        str | None, Parameter(help="Any process, as in markov(vocab=3,order=2,concentration=0.5).")
    ] = None,
    shape: Shape = A_SHAPE,
    schedule: Schedule = A_SCHEDULE,
    device: Device = "auto",
    max_minutes: Annotated[float, Parameter(help="Stop cleanly after so long.")] = float("inf"),
    checkpoint_every: Annotated[int, Parameter(help="Steps between checkpoints.")] = 1000,
    checkpoint_seconds: Annotated[
        float, Parameter(help="Seconds between checkpoints, where steps take longer.")
    ] = 30.0,
    as_json: AsJson = False,
) -> None:
    """Train a transformer on rows that random laws write, until it guesses which law is writing.

    Ctrl-C stops cleanly; the same command goes on.
    """
    from posteer.training import plan as plans
    from posteer.training.ranks import is_first
    from posteer.views.terminal.training import watch_training

    plan = plans.make_plan(preset, process, vars(shape), vars(schedule))
    require(checkpoint_every >= 1, f"{checkpoint_every} steps: expected at least 1")
    require(checkpoint_seconds >= 0, f"{checkpoint_seconds} seconds: expected at least 0")
    often = (checkpoint_every, checkpoint_seconds)
    done = watch_training(plan, out, device, max_minutes, often, quiet=as_json)
    if as_json and is_first():
        print_json(done)
    if done["status"] == "diverged":
        sys.exit(1)


app.command(listing.models)
app.command(listing.methods)
app.command(listing.utilities)
listing.completion_of(app)
app.command(trainings.train_many)
app.command(checking.check)
app.command(sweep.app)
app.command(sweep.tables)
app.command(pages.report)
app.command(pages.explore)


def refuse(message: str) -> NoReturn:
    """One line that any terminal can show, exit 2."""
    words = " ".join(in_options(message).split())[:2000]
    print(
        "posteer: " + "".join(c if c.isprintable() else repr(c)[1:-1] for c in words),
        file=sys.stderr,
    )
    sys.exit(2)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line. Bad input is one line on standard error and exit status 2."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # a terminal without our characters shows others
            stream.reconfigure(errors="replace")
    try:
        with one_call():
            app(
                None if arguments is None else list(arguments),
                exit_on_error=False,
                print_error=False,
                result_action="return_value",
            )
        if sys.stdout is not None:  # as some that start us leave it
            sys.stdout.flush()
    except (BrokenPipeError, SystemExit) as left:
        if isinstance(left, SystemExit) and not isinstance(left.__context__, BrokenPipeError):
            raise
        _leave_unread()  # rich makes an exit of it
    except (CycloptsError, InputError) as error:
        refuse(str(error))
    except MemoryError as error:
        refuse(f"not enough memory: {error}")
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        refuse(f"{where}{error.strerror or error}")
    except KeyboardInterrupt as stopped:
        print(f"posteer: {_kept(stopped)}", file=sys.stderr)
        sys.exit(130)


def _leave_unread() -> NoReturn:
    """Our reader has gone, as in `posteer ... | head`: end quietly, as tools do."""
    with suppress(AttributeError, OSError):  # no stream, or none of the system's
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(141)


def _kept(stop: KeyboardInterrupt) -> str:
    """What an interruption left, and how to go on."""
    if not isinstance(stop, Interrupted):
        return f"interrupted: {stop}" if str(stop) else "interrupted"
    from posteer.views.sentences import interrupted_text

    return interrupted_text(stop)
