"""The command line: parse, call one function, print. torch loads only when a command runs."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from cyclopts import App, CycloptsError, Parameter

from posteer.cli import sweep
from posteer.cli.output import AsJson, print_json, refuse
from posteer.core.errors import InputError, require
from posteer.core.version import __version__

app = App(
    name="posteer",
    version=__version__,
    help="Elicit behaviour from sequence models by steering their latent posterior.",
)

Model = Annotated[
    str,
    Parameter(
        help="urn, beta-bernoulli, ternary, second-order (trained), a model folder, exact:urn, "
        "exact:beta-bernoulli, exact:markov(vocab=3,order=2,concentration=0.5), "
        "exact:coins(0.2,0.7) or exact:mixture([[..],[..]],[[..],[..]]), or ./file.py:name."
    ),
]
UtilityName = Annotated[
    str,
    Parameter(
        help="dyck, frequency(0.3), reverse-xent(tau-0.2), reverse-xent(sym-0.1), "
        "reverse-xent(dir-4), reverse-xent([[..],[..]]), forward-xent(tau-0.2) (not for ppt) or "
        "./file.py:function."
    ),
]
Budget = Annotated[
    int | None, Parameter(help="Most model tokens a run may spend, forward and backward.")
]
Context = Annotated[
    str, Parameter(help="Tokens such as 0110 that the model has read before the prompt.")
]
Allowed = Annotated[
    str | None,
    Parameter(
        help="Conditions on the prompt: first=0;last=1;ban=11,000;count(1)<=10;position(3)=0|1."
    ),
]
Device = Annotated[str, Parameter(help="Where a network runs: auto, cpu or cuda.")]
Horizon = Annotated[int, Parameter(help="Length of the continuations that are judged.")]


@app.command
def elicit(
    *,
    model: Model = "exact:urn",
    utility: UtilityName = "dyck",
    length: Annotated[int, Parameter(help="Length of the prompt to find.")] = 6,
    horizon: Horizon = 4,
    method: Annotated[
        str | None,
        Parameter(
            help="auto, classes, classes-analytic, ppt, ppt-rb, ppt-analytic, ppt-rb-analytic, "
            "gcg, coordinate, beam, random, simplex-pt, real-pt, soft-pt or exhaustive."
        ),
    ] = "auto",
    seed: Annotated[
        int, Parameter(help="Seed of the run; rollout banks are shared by all seeds.")
    ] = 0,
    bank: Annotated[
        str | None, Parameter(help="Latents from `posteer sample`, for classes, ppt and ppt-rb.")
    ] = None,
    allow_mismatch: Annotated[
        bool, Parameter(negative="", help="Use a bank of another model, or a posterior.")
    ] = False,
    context: Context = "",
    allowed: Allowed = None,
    max_model_tokens: Budget = None,
    verify: Annotated[
        int, Parameter(help="Ask the model itself about so many of the best candidates.")
    ] = 0,
    device: Device = "auto",
    as_json: Annotated[AsJson, Parameter(name="--json")] = False,
) -> None:
    """Find a hard prompt under which the model's continuations have high utility."""
    from posteer.api.elicit import elicit as find
    from posteer.views.terminal import panels as console

    with console.delayed_progress() as progress:
        found = find(
            model,
            utility,
            length=length,
            horizon=horizon,
            method=method,
            seed=seed,
            bank=bank,
            allow_mismatch=allow_mismatch,
            context=context,
            allowed=allowed,
            max_model_tokens=max_model_tokens,
            verify=verify,
            device=device,
            progress=progress,
        )
    if as_json:
        print_json(found.to_json())
    else:
        console.show_elicitation(found)


@app.command
def compare(
    *,
    model: Model = "urn",
    utility: UtilityName = "dyck",
    length: Annotated[int, Parameter(help="Length of the prompts to find.")] = 6,
    horizon: Horizon = 4,
    methods: Annotated[
        str, Parameter(help="Comma-separated, settings in brackets: ppt-rb,gcg,coordinate.")
    ] = "ppt-rb,gcg,coordinate",
    seeds: Annotated[int, Parameter(help="Runs of each method.")] = 10,
    context: Context = "",
    allowed: Allowed = None,
    max_model_tokens: Budget = None,
    amortise: Annotated[
        int, Parameter(help="Utilities that share the cost of a bank in table and figure.")
    ] = 51,
    figure: Annotated[
        Path | None, Parameter(help="Best utility against tokens: .svg, .pdf or .png.")
    ] = None,
    device: Device = "auto",
    as_json: Annotated[AsJson, Parameter(name="--json")] = False,
) -> None:
    """Methods side by side: what they find, what they cost, when a bank pays for itself."""
    from posteer.api import compare as comparing
    from posteer.core.spec import split_names
    from posteer.views.figures import canvas as figures
    from posteer.views.terminal import panels as console
    from posteer.views.terminal.compare import show_comparison

    if figure is not None:
        figures.check_path(figure)
    with console.delayed_progress() as progress:
        found = comparing.compare(
            model,
            utility,
            length=length,
            horizon=horizon,
            methods=split_names(methods),
            seeds=seeds,
            context=context,
            allowed=allowed,
            max_model_tokens=max_model_tokens,
            amortised_over=amortise,
            device=device,
            progress=progress,
        )
    if figure is not None:
        from posteer.views.figures.compare import draw_trajectories

        paths = {
            summary.method: [results.trajectory(run, amortise) for run in summary.runs]
            for summary in found.methods
        }
        title = f"{utility} from {model}, length {length}"
        draw_trajectories(paths, title, found.optimum, figure)
    if as_json:
        print_json(found.to_json())
    else:
        show_comparison(found)


@app.command
def evaluate(
    *,
    model: Model = "exact:urn",
    utility: UtilityName = "dyck",
    prompt: Annotated[
        str, Parameter(help="Tokens such as 010101; comma-separated past ten symbols.")
    ],
    horizon: Horizon = 4,
    seed: Annotated[int, Parameter(help="Seed of Monte Carlo rollouts, if any are needed.")] = 0,
    context: Context = "",
    device: Device = "auto",
    as_json: Annotated[AsJson, Parameter(name="--json")] = False,
) -> None:
    """The expected utility of a given prompt, and its rank among all prompts of its length."""
    from posteer.api.evaluate import judge
    from posteer.views.terminal import panels as console

    with console.delayed_progress() as progress:
        judged = judge(
            model,
            utility,
            prompt,
            horizon=horizon,
            seed=seed,
            context=context,
            device=device,
            progress=progress,
        )
    if as_json:
        print_json(judged.to_json())
    else:
        console.show_judgement(judged)


@app.command
def sample(
    *,
    model: Model = "urn",
    rollouts: Annotated[int, Parameter(help="Latents to draw.")] = 5000,
    length: Annotated[int, Parameter(help="Tokens of each rollout.")] = 2000,
    out: Annotated[
        Path | None, Parameter(help="File of the bank; the same command resumes a draw.")
    ] = None,
    seed: int = 0,
    context: Annotated[
        str, Parameter(help="Observed tokens such as 0110: draw the posterior after them.")
    ] = "",
    unvisited: Annotated[
        str,
        Parameter(help="Rows a rollout never reached: donor, uniform, predictive or dirichlet."),
    ] = "donor",
    chunk: Annotated[
        int | None, Parameter(help="Rollouts at a time; as many as the memory takes by default.")
    ] = None,
    keep_tokens: Annotated[
        bool, Parameter(negative="", help="Keep the rollouts themselves in the bank.")
    ] = False,
    check: Annotated[
        bool, Parameter(negative="", help="Test whether the model behaves as a Bayes filter.")
    ] = False,
    effort: Annotated[float, Parameter(help="Work of --check, as a multiple.")] = 1.0,
    figure: Annotated[
        Path | None, Parameter(help="Draw what --check found: .svg, .pdf or .png.")
    ] = None,
    device: Device = "auto",
    as_json: Annotated[AsJson, Parameter(name="--json")] = False,
) -> None:
    """Draw a model's own latent prior by rolling it out and counting (predictive Monte Carlo)."""
    from posteer.banks import sampling
    from posteer.banks.checks import report as checks
    from posteer.core.device import pick_device
    from posteer.models import open_model
    from posteer.views.figures import canvas as figures
    from posteer.views.terminal import banks
    from posteer.views.terminal import panels as console

    require(out is not None or check, "expected --out FILE for the bank, or --check")
    require(figure is None or check, "--figure shows what --check found: give both")
    if figure is not None:
        figures.check_path(figure)
    settings = checks.CheckSettings(effort=effort, seed=seed)
    opened = open_model(model, pick_device(device))
    with console.delayed_progress() as progress:
        bank = sampling.sample(
            opened,
            rollouts=rollouts,
            length=length,
            seed=seed,
            context=context,
            unvisited=unvisited,
            keep_tokens=keep_tokens,
            out=out,
            chunk=chunk,
            progress=progress,
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
    out: Annotated[Path, Parameter(help="Folder of the run; the same command resumes it.")],
    preset: Annotated[
        str | None, Parameter(help="beta-bernoulli, urn (the paper's) or tiny.")
    ] = None,
    process: Annotated[
        str | None, Parameter(help="Any process, as in markov(vocab=3,order=2,concentration=0.5).")
    ] = None,
    layers: int | None = None,
    width: int | None = None,
    heads: int | None = None,
    feedforward: int | None = None,
    positions: Annotated[str | None, Parameter(help="none or learned.")] = None,
    batch: int | None = None,
    length: int | None = None,
    steps: int | None = None,
    warmup: int | None = None,
    peak_rate: float | None = None,
    final_rate: float | None = None,
    accumulate: int | None = None,
    seed: int | None = None,
    device: Device = "auto",
    max_minutes: Annotated[float, Parameter(help="Stop cleanly after so long.")] = float("inf"),
    as_json: Annotated[AsJson, Parameter(name="--json")] = False,
) -> None:
    """Meta-train a transformer to filter a process. Ctrl-C stops cleanly; run again to go on."""
    from posteer.training import plan as plans
    from posteer.views.terminal import panels as console

    sizes = {"layers": layers, "width": width, "heads": heads, "feedforward": feedforward}
    rest = {
        "batch": batch,
        "length": length,
        "steps": steps,
        "warmup": warmup,
        "peak_rate": peak_rate,
        "final_rate": final_rate,
        "accumulate": accumulate,
        "seed": seed,
    }
    plan = plans.make_plan(preset, process, {**sizes, "positions": positions}, rest)
    done = console.watch_training(plan, out, device, max_minutes, quiet=as_json)
    if as_json:
        print_json(done)
    if done["status"] == "diverged":
        sys.exit(1)


@app.command
def models(*, as_json: Annotated[AsJson, Parameter(name="--json")] = False) -> None:
    """The trained models inside the package, checked against their hashes."""
    from posteer.models import model_facts, shipped_models
    from posteer.views.terminal import panels as console

    facts = [model_facts(folder) for folder in shipped_models().values()]
    if as_json:
        print_json(facts)
    else:
        console.show_models(facts)


app.command(sweep.app)
app.command(sweep.tables)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line. Bad input is one line on standard error and exit status 2."""
    try:
        app(
            None if arguments is None else list(arguments),
            exit_on_error=False,
            print_error=False,
            result_action="return_value",
        )
    except (CycloptsError, InputError) as error:
        refuse(" ".join(str(error).split()))
    except OSError as error:
        if isinstance(error, BrokenPipeError):  # our reader has gone, as in `posteer ... | head`
            sys.stderr.close()
            sys.exit(141)
        where = f"{error.filename}: " if error.filename else ""
        refuse(f"{where}{error.strerror or error}")
    except KeyboardInterrupt:
        print("posteer: interrupted", file=sys.stderr)
        sys.exit(130)
