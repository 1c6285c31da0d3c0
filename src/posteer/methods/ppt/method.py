"""Posterior prefix tuning: bank, ascent, snap. Four variants from two switches.

ppt              rollouts of the model   one rollout per latent and context
ppt-rb           rollouts of the model   exact means
ppt-analytic     draws from the prior    one rollout per latent and context
ppt-rb-analytic  draws from the prior    exact means

A prior of finitely many latents is not drawn from: all of them are taken, with their weights and
with exact means wherever there are any, so that the surrogate has no standard error.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, get_args

from posteer.banks.plans import DrawPlan
from posteer.core import Progress, Spec, integer, number, phase, require
from posteer.core.device import pick_device
from posteer.families.markov.family import MarkovFamily
from posteer.families.markov.tilt import Tilt
from posteer.methods.answers import Answer, Step
from posteer.methods.forecasting import work_of_ascents
from posteer.methods.latent_source import (
    draw_plan,
    draw_settings,
    needs_of,
    require_room,
    with_tuned_bank,
)
from posteer.methods.ppt.ascent import AscentSettings
from posteer.methods.ppt.batches import Optimised, ascend_all, on_held_out
from posteer.methods.ppt.snap import CandidateScore
from posteer.methods.ppt.states import solve_on_states
from posteer.methods.protocol import Needs, Problem, Work


@dataclass(frozen=True, kw_only=True)
class PosteriorPrefixTuning:
    """The paper's method. `analytic` and `exact_means` select the variant, `tilt` what weighs
    the latents under a prompt kernel: the paper's linear tilt or the geometric one.

    Rollouts come from the request's bank if there is one, from the bank shipped with the model if
    the `draw` is the shipped one, and are drawn otherwise. Ascents run on `device`, the request's
    where it is None.
    """

    analytic: bool
    exact_means: bool
    draw: DrawPlan = field(default_factory=draw_plan)
    ascent: AscentSettings = field(default_factory=AscentSettings)
    tilt: Tilt = "linear"
    candidate_score: CandidateScore = "own-context"
    device: str | None = None

    @property
    def name(self) -> str:
        return f"ppt{'-rb' * self.exact_means}{'-analytic' * self.analytic}"

    @property
    def needs(self) -> Needs:
        exact = self.exact_means
        return needs_of(self.analytic, self.draw, exact_means=exact, tilts=True, device=True)

    def forecast(self, problem: Problem, together: int) -> Work:
        def ascend(problems: list[Problem], steps: int) -> None:
            probe = replace(self, analytic=True, ascent=replace(self.ascent, max_steps=steps))
            probe.optimise(problems)

        if not isinstance(problem.family, MarkovFamily):
            return Work(None)
        return work_of_ascents(
            problem, together, self.draw.n_samples, self.ascent.max_steps, self.exact_means, ascend
        )

    def solve(self, problems: list[Problem], progress: Progress | None = None) -> list[Answer]:
        """Problems whose latents and goals agree in order ascend as one batch; latents that are no
        kernels one after another, with exact means."""
        problems = with_tuned_bank(self.draw, problems, progress)
        if not isinstance(problems[0].family, MarkovFamily):
            linear = self.tilt == "linear"
            require(linear, f"{self.name}: tilt {self.tilt} works on Markov kernels: use linear")
            return solve_on_states(problems, self.needs, self.ascent, progress)
        solutions = self.optimise(problems, progress)
        with phase("held-out"):
            held_out = on_held_out(solutions, self.tilt, self.device)
        return [self._recover(*found) for found in zip(solutions, held_out, strict=True)]

    def optimise(
        self, problems: list[Problem], progress: Progress | None = None
    ) -> list[Optimised]:
        """The continuous part alone: one optimised prompt kernel per problem."""
        for problem in problems:
            require_room(self.needs, problem, self.name)
        return ascend_all(
            problems,
            self.needs,
            self.ascent,
            self.tilt,
            exact_means=self.exact_means,
            device=self.device,
            progress=progress,
        )

    def _recover(self, solution: Optimised, held_out: tuple[float | None, float | None]) -> Answer:
        ascent, exact = solution.ascent, solution.bank.exact
        with phase("snap"):
            prompt, snapped = solution.snap(self.candidate_score)
        steps = zip(ascent.surrogate_history, ascent.seconds_history, strict=True)
        return Answer(
            prompt=prompt,
            queries=solution.queries,
            bank_tokens=solution.bank.tokens,
            surrogate=ascent.surrogate,
            surrogate_standard_error=0.0 if exact else ascent.standard_error,
            snapped_surrogate=snapped,
            held_out_surrogate=held_out[0],
            held_out_standard_error=held_out[1],
            ess_fraction=None if exact else solution.ess_fraction,
            pareto_k=None if exact else solution.pareto_k,
            steps=ascent.steps,
            stop_reason=ascent.stop_reason,
            prompt_kernel=ascent.kept_kernel,
            history=[Step(value, 0, 0, 0, seconds) for value, seconds in steps],
            surrogate_history=ascent.surrogate_history,
            ess_history=[] if exact else ascent.ess_history,
        )


def from_spec(spec: Spec) -> PosteriorPrefixTuning:
    """`ppt-rb-analytic(samples=5000,steps=5000,rate=0.1,tilt=linear)`."""
    analytic, exact_means = spec.name.endswith("-analytic"), spec.name.startswith("ppt-rb")
    defaults = AscentSettings()
    settings: dict[str, Any] = {
        "steps": defaults.max_steps,
        "rate": defaults.learning_rate,
        "tilt": "linear",
        "candidate-score": "own-context",
        "device": None,
    }
    given = spec.take(**draw_settings(analytic) | settings)
    for setting, choices in (
        ("tilt", get_args(Tilt)),
        ("candidate-score", get_args(CandidateScore)),
    ):
        require(
            given[setting] in choices,
            f"{setting} '{given[setting]}': expected one of {', '.join(choices)}",
        )
    return PosteriorPrefixTuning(
        analytic=analytic,
        exact_means=exact_means,
        draw=draw_plan(given),
        ascent=AscentSettings(
            max_steps=integer(given["steps"], "steps"),
            learning_rate=number(given["rate"], "rate"),
        ),
        tilt=given["tilt"],
        candidate_score=given["candidate-score"],
        device=None if given["device"] is None else pick_device(str(given["device"])),
    )
