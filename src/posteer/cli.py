"""The command line: parse, call one function, print. torch loads only when a command runs."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Annotated, NoReturn

from cyclopts import App, CycloptsError, Parameter

from posteer import __version__
from posteer.errors import InputError

app = App(
    name="posteer",
    version=__version__,
    help="Elicit behaviour from sequence models by steering their latent posterior.",
)

Model = Annotated[
    str,
    Parameter(
        help="exact:urn, exact:beta-bernoulli, exact:markov(vocab=3,order=2,concentration=0.5), "
        "exact:coins(0.2,0.7) or exact:mixture([[..],[..]],[[..],[..]])."
    ),
]
UtilityName = Annotated[
    str,
    Parameter(
        help="dyck, frequency(0.3), reverse-xent(tau-0.2), reverse-xent(sym-0.1), "
        "reverse-xent(dir-4), reverse-xent([[..],[..]]) or ./file.py:function."
    ),
]
Horizon = Annotated[int, Parameter(help="Length of the continuations that are judged.")]
AsJson = Annotated[bool, Parameter(negative="", help="Print one JSON object for machines.")]


@app.command
def elicit(
    *,
    model: Model = "exact:urn",
    utility: UtilityName = "dyck",
    length: Annotated[int, Parameter(help="Length of the prompt to find.")] = 6,
    horizon: Horizon = 4,
    method: Annotated[
        str, Parameter(help="ppt, ppt-rb, ppt-analytic, ppt-rb-analytic or exhaustive.")
    ] = "ppt-rb-analytic",
    seed: Annotated[int, Parameter(help="Seed of every random draw.")] = 0,
    as_json: Annotated[AsJson, Parameter(name="--json")] = False,
) -> None:
    """Find a hard prompt under which the model's continuations have high utility."""
    from posteer import console
    from posteer.elicitation import elicit as find

    with console.delayed_progress() as progress:
        found = find(
            model,
            utility,
            length=length,
            horizon=horizon,
            method=method,
            seed=seed,
            progress=progress,
        )
    if as_json:
        print(json.dumps(found.to_json()))
    else:
        console.show_elicitation(found)


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
    as_json: Annotated[AsJson, Parameter(name="--json")] = False,
) -> None:
    """The expected utility of a given prompt, and its rank among all prompts of its length."""
    from posteer import console
    from posteer.elicitation import judge

    judged = judge(model, utility, prompt, horizon=horizon, seed=seed)
    if as_json:
        print(json.dumps(judged.to_json()))
    else:
        console.show_judgement(judged)


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
    except KeyboardInterrupt:
        print("posteer: interrupted", file=sys.stderr)
        sys.exit(130)
    except BrokenPipeError:  # the reader of our output has gone, as in `posteer ... | head`
        sys.stderr.close()
        sys.exit(141)


def refuse(message: str) -> NoReturn:
    """One line, exit 2."""
    print(f"posteer: {message}", file=sys.stderr)
    sys.exit(2)


if __name__ == "__main__":
    main()
