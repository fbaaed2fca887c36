"""`peakrl evaluate`, `peakrl certify` and `peakrl verify`: judge a stored policy, exactly or from new episodes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from peakrl.cli.command import Answer, read_problem
from peakrl.cli.output import print_table, say
from peakrl.errors import SettingsError

if TYPE_CHECKING:
    from peakrl.certificates.certificate import Certificate
    from peakrl.gym.env_spec import LearningTarget
    from peakrl.policy.mixture import AnyPolicy
    from peakrl.training.spec_file import ProblemFile


def certify(
    file: Path,
    *,
    policy: Path,
    epsilon: float | None = None,
    episodes: int | None = None,
    failure_probability: float = 0.05,
    seed: int | None = None,
    discount: float | None = None,
    out: Path | None = None,
    trust: bool = False,
) -> Answer:
    """Certify a policy. Exit code 1 if the certificate does not hold.

    Parameters
    ----------
    file : FILE
        A problem file, or a built-in problem as for `peakrl solve`.
    policy : FILE
        A policy of `peakrl solve --policy` or a run of `peakrl train --out`.
    epsilon
        Require a value within epsilon of the best safe policy and a violation of at most epsilon.
    episodes : N
        Use up to N new episodes instead of exact computation.
    failure_probability
        Of all bounds from episodes together.
    seed
        Of the episodes; default: random.
    discount
        Weight of the next step, in place of a horizon; default: that of the run or the file. With neither, and without
        an end, rewards are averages of a step.
    out : FILE
        Save the certificate, for `peakrl verify`.
    """
    from peakrl.certificates.certify import certify as examine
    from peakrl.storage import ready

    ready(out)
    described = read_problem(file, trust, discount)
    target = described.target(progress=True)
    chosen, *_, learned = read_policy(policy, "last", target)
    certificate = examine(
        target.table if target.table is not None and episodes is None else target.subject, chosen, epsilon=epsilon,
        failure_probability=failure_probability, episodes=episodes, seed=seed, unknown="random",
        discount=first_of(discount, learned, described),
    )  # fmt: skip
    if out is not None:
        certificate.save(out)
    return answer_of(certificate, out)


def verify(file: Path) -> Answer:
    """Recompute a certificate with independent code. Exit code 1 if it does not hold.

    Parameters
    ----------
    file : FILE
        A certificate of `peakrl certify --out`.
    """
    from peakrl.certificates.verify import verify as check

    return answer_of(check(file))


def answer_of(certificate: Certificate, saved: Path | None = None) -> Answer:
    """Return a certificate as an answer."""

    def show() -> None:
        say(certificate)
        if saved is not None:
            say(f"saved to {saved}; check it with `peakrl verify {saved}`")

    values = certificate.as_dict() | ({} if saved is None else {"file": str(saved)})
    return Answer(values, show, certificate.holds)


# peakrl evaluate --------------------------------------------------------------------------------------------------

POLICIES = ("last", "averaged")


def evaluate(
    file: Path,
    *,
    policy: str = "last",
    simulate: int | None = None,
    seed: int = 0,
    discount: float | None = None,
    problem: Path | None = None,
    check: bool = False,
    trust: bool = False,
) -> Answer:
    """Compute the exact value and violation of a policy; simulate it with --simulate.

    Parameters
    ----------
    file : FILE
        A run of `peakrl train --out`, or a policy of `peakrl solve --policy` with --problem.
    policy
        last, or averaged (the mixture of all policies, Theorem 1).
    simulate : N
        Also simulate N episodes, at least 2.
    seed
        Of the simulated episodes.
    discount
        As for `peakrl certify`.
    problem : FILE
        The problem file; required for a policy file and for environments.
    check
        Exit with code 1 if the policy may violate a constraint.
    """
    from peakrl.checks import check_choice, check_count

    check_choice(policy, "--policy", POLICIES)
    if simulate is not None:
        check_count(simulate, "--simulate", 2)
    if file.suffix in (".toml", ".json"):
        raise SettingsError(f"{file} is a problem file; train it first: peakrl train {file} --out {file.stem}.run")
    described = None if problem is None else read_problem(problem, trust, discount)
    target = None if described is None else described.target(progress=True)
    chosen, which, episodes, learned = read_policy(file, policy, target)
    if simulate is not None and chosen.model.steps is None:
        raise SettingsError(
            "--simulate: the policy has no end; in Python, peakrl.simulate(..., steps=N) draws episodes"
        )
    discount = first_of(discount, learned, described)
    answer: dict[str, Any] = {
        "problem": chosen.model.name, "policy": which, "episodes": episodes, "discount": discount,
    }  # fmt: skip
    answer |= metrics(chosen, target, discount)
    if simulate is not None:
        answer["simulation"] = simulated(chosen, simulate, seed, target)

    def show() -> None:
        after = "" if episodes is None else f" after {episodes:,} episodes"
        if discount is not None:
            after += f", discount {discount:g}"
        elif chosen.model.steps is None:
            after += ", average of a step"
        print_table(f"{answer['problem']}: {which} policy{after}", *table_of(answer))
        margins = [(name, margin, margin >= 0) for name, margin in answer["worst_margin"].items()]
        if margins:
            print_table("Constraints", ("constraint", "worst possible value", "always satisfied"), margins)
        if answer["value"] is None:
            instead = "" if chosen.model.steps is None else "; use --simulate N"
            say(f"The environment has no transition table, so there are no exact values{instead}.")

    return Answer(answer, show, not check or answer["violation_probability"] == 0)


def read_policy(
    file: Path, which: str, target: LearningTarget | None
) -> tuple[AnyPolicy, str, int | None, float | None]:
    """Return the policy of a policy file or run file, its name, and the episodes and the discount of the run."""
    from peakrl.policy.export import POLICY
    from peakrl.policy.files import load_policy
    from peakrl.records import kind_of
    from peakrl.training.learn import load_run
    from peakrl.training.run_file import ENVIRONMENT_RUN

    model = None if target is None or target.is_environment else target.table
    if kind_of(file) == POLICY.name:
        if target is None:
            raise SettingsError(f"{file} contains a policy without its problem: pass --problem FILE")
        return load_policy(file, model), "saved", None, None
    run = load_run(file, None if kind_of(file) == ENVIRONMENT_RUN.name else model)
    return run.policy if which == "last" else run.averaged_policy, which, run.episodes, run.discount


def first_of(asked: float | None, learned: float | None, described: ProblemFile | None) -> float | None:
    """Return the discount that was asked for, else that of the run, else that of the problem file."""
    own = None if described is None else described.spec.parameters.get("discount")
    return next((each for each in (asked, learned, own) if each is not None), None)


def metrics(policy: AnyPolicy, target: LearningTarget | None, discount: float | None) -> dict[str, Any]:
    """Return the exact metrics of a policy; None if an environment has no transition table."""
    from peakrl.certificates.certify import policy_on_table
    from peakrl.evaluation import evaluate as exact
    from peakrl.tabular import TabularModel

    model = policy.model
    if not isinstance(model, TabularModel):
        if target is None:
            raise SettingsError("the policy was learned on an environment: pass its problem file with --problem")
        if target.table is None:
            return {**dict.fromkeys(("value", "violation", "violation_probability")), "worst_margin": {}}
        model = target.table if discount is None else target.table.with_horizon(None)
        policy = policy_on_table(model, policy)
    found = exact(model, policy, **({} if discount is None else {"discount": discount}))
    by_step = {name: getattr(found, name) for name in ("step_rewards", "step_violations") if hasattr(found, name)}
    return {
        "value": found.value,
        "violation": found.violation,
        "violation_probability": found.violation_probability,
        "worst_margin": dict(zip(model.constraint_names, found.worst_margin.tolist(), strict=True)),
        **by_step,
    }


def simulated(policy: AnyPolicy, episodes: int, seed: int, target: LearningTarget | None) -> dict[str, Any]:
    """Return the results of simulated episodes."""
    from peakrl.evaluation import simulate

    seen = simulate(policy.model if target is None else target.subject, policy, episodes=episodes, seed=seed)
    return {
        "episodes": episodes,
        "seed": seed,
        "confidence": seen.confidence,
        "value": seen.value,
        "value_interval": seen.value_interval,
        "violation": seen.violation,
        "violation_interval": seen.violation_interval,
        "violation_probability": seen.violation_frequency,
        "violation_probability_interval": seen.violation_frequency_interval,
        "approximate": seen.approximate,
        "unknown_steps": seen.unknown_steps,
    }


def table_of(answer: dict[str, Any]) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
    """Return columns and rows: each quantity exact and, if requested, simulated with its interval."""
    columns: tuple[str, ...] = ("quantity", "exact")
    rows: list[tuple[Any, ...]] = [
        (name.replace("_", " "), answer[name]) for name in ("value", "violation", "violation_probability")
    ]
    seen = answer.get("simulation")
    if seen is not None:
        columns += (f"in {seen['episodes']:,} episodes", f"{seen['confidence']:.0%} interval")
        for index, name in enumerate(("value", "violation", "violation_probability")):
            low, high = seen[f"{name}_interval"]
            about = " (approximate)" if name in seen["approximate"] else ""
            rows[index] += (seen[name], f"{low:,.6g} to {high:,.6g}{about}")
    return columns, rows
