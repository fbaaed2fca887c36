"""`peakrl train`: learn a problem, save the run, and print the result."""

from __future__ import annotations

import os
import shlex
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from peakrl.cli.command import Answer, read_problem
from peakrl.cli.output import print_table, say
from peakrl.errors import SettingsError, StorageError

if TYPE_CHECKING:
    from peakrl.certificates.certificate import Certificate
    from peakrl.gym.env_spec import LearningTarget
    from peakrl.training.run import LearningRun, RunView
    from peakrl.training.spec_file import ProblemFile

#: Episodes by default, and most lines of a proof.
EPISODES, PROOF_LINES = 50_000, 12
#: Why a history is sampled, by whether the target is an environment; None: there is a discount.
WHY_SAMPLED = {
    True: "for environments only the rewards of episodes are known",
    False: "rewards of episodes (the exact curve of a large model would take minutes; "
    "history = 1000 in the file records it anyway, every 1,000 episodes)",
    None: "undiscounted rewards of episodes",
}


def train(
    file: Path | None = None,
    *,
    episodes: int | None = None,
    steps: int | None = None,
    seed: int | None = None,
    discount: float | None = None,
    out: Path | None = None,
    resume: Path | None = None,
    checkpoint: Path | None = None,
    overwrite: bool = False,
    certificate: Path | None = None,
    trust: bool = False,
) -> Answer:
    """Learn a problem. Repeating the command with the same --out resumes an interrupted run.

    Exit code 1 if the problem is infeasible.

    Parameters
    ----------
    file : FILE
        A problem file (see `peakrl init`), a built-in problem (see `peakrl solve`), or a log, NAME.csv, that NAME.toml
        describes.
    episodes
        Total number of episodes; default: that of the file or of the resumed run.
    steps
        With a discount, the total number of steps in place of episodes; default: that of the file or the resumed run.
    seed
        Seed of the run; default: that of the file.
    discount
        Weight of the next step, in place of a horizon; default: that of the file.
    out : RUN
        Save the run here, with checkpoints while it learns.
    resume : RUN
        Resume this run; FILE is required for environments only.
    checkpoint : RUN
        Write checkpoints here; default: --out, or that of the file.
    overwrite
        Start again even if --out or --checkpoint contains a run, which becomes NAME.before.
    certificate : FILE
        Save the certificate of a certified learner or of a log here, for `peakrl verify`.
    """
    from peakrl.storage import ready

    begun = time.perf_counter()
    ready(out, checkpoint, certificate)
    for name, given in (("seed", seed), ("discount", discount)):
        if resume is not None and given is not None:
            raise SettingsError(f"--{name} cannot be changed in a resumed run: omit it")
    if resume is None and file is None:
        raise SettingsError("name a problem file (`peakrl init NAME` writes one), or pass a run with --resume")
    described = None if file is None else read_problem(file, trust, discount)
    place = checkpoint or out or resume or (None if described is None else described.checkpoint)
    refuse_loss({out, place} - {None, resume}, place if resume is None else None, overwrite)
    begun_at: list[int] = []
    try:
        with warnings.catch_warnings():
            vars(warnings)["showwarning"] = lambda message, *_: say(f"peakrl: {message}", error=True)

            def watch(moment: RunView) -> None:
                begun_at.append(moment.episodes)

            asked = {"episodes": episodes, "steps": steps, "checkpoint": place, "progress": True, "watch": watch}
            target = None if described is None else described.target(progress=True)
            if resume is not None:
                run = resumed(resume, target, **asked)
            elif described is not None and target is not None:
                if overwrite and place is not None:
                    set_aside(place)
                run = learned(described, target, seed, asked)
            kept = out or place
            if kept is not None and kept != (resume or place):  # `learn` has written its checkpoint
                run.save(kept)
    except KeyboardInterrupt:
        kept_in = f"; the run so far is in {place}" if place is not None and place.exists() else ""
        say(f"peakrl: interrupted{kept_in}", error=True)
        raise typer.Exit(130) from None
    answer = report(run, target, time.perf_counter() - begun)
    answer["episodes_before"] = begun_at[0] if begun_at else 0
    answer["run_file"] = None if kept is None else str(kept)
    certificates = answer.pop("certificates")
    if certificate is not None and run.certificate is not None:
        run.certificate.save(certificate)
    elif certificate is not None:
        raise SettingsError(f"--certificate: {run.settings} issues none; `peakrl certify` judges a policy")
    return Answer(answer, lambda: show(answer, certificates, file, trust), answer["feasible"] is not False)


def learned(described: ProblemFile, target: LearningTarget, seed: int | None, asked: dict[str, Any]) -> LearningRun:
    """Learn the problem of a file."""
    from peakrl.training.learn import learn
    from peakrl.training.log_spec import LogSpec

    own = described.run
    if isinstance(described.spec, LogSpec):
        run = learn(
            target.subject, described.settings, assumptions=described.assumptions, episodes=asked["episodes"],
            steps=asked["steps"], seed=own.seed if seed is None else seed, history=own.history,
        )  # fmt: skip
        if asked["checkpoint"] is not None:
            run.save(asked["checkpoint"])
        return run
    if asked["episodes"] is None and asked["steps"] is None:
        asked |= {"episodes": own.episodes if own.episodes or own.steps else EPISODES, "steps": own.steps}
    return learn(
        target.subject,
        described.settings,
        assumptions=described.assumptions,
        seed=own.seed if seed is None else seed,
        discount=described.spec.parameters.get("discount"),
        history=own.history,
        average=own.average,
        **asked,
    )


def resumed(path: Path, target: LearningTarget | None, **asked: Any) -> LearningRun:
    """Resume a run file; the target is needed for environments and for runs without their model."""
    from peakrl.records import kind_of
    from peakrl.training.learn import resume
    from peakrl.training.run_file import ENVIRONMENT_RUN

    if target is not None:
        return resume(path, **asked, **{"env" if target.is_environment else "model": target.subject})
    if kind_of(path) == ENVIRONMENT_RUN.name:
        raise SettingsError(f"{path} is a run on an environment: name its problem file too")
    return resume(path, **asked)


def refuse_loss(paths: set[Path | None], resumed_from: Path | None, overwrite: bool) -> None:
    """Raise if another run would be lost; `learn` resumes from its checkpoint."""
    from peakrl.records import kind_of
    from peakrl.storage import ready

    for path in sorted(path for path in paths if path is not None):
        ready(path)
        if path.exists() and path != resumed_from and not overwrite:
            raise StorageError(f"{path} already exists: choose another --out, or pass --overwrite")
        if overwrite and path.exists() and path.stat().st_size and kind_of(path) is None:
            raise StorageError(f"{path} is not a file of peakrl and is not overwritten: remove it yourself")


def set_aside(path: Path) -> None:
    """Rename a file that is to be overwritten."""
    from peakrl.storage import writable

    place = writable(path)  # the target of a link is overwritten, not the link
    if place.exists():
        try:
            os.replace(place, place.with_name(f"{place.name}.before"))
        except OSError as error:
            raise StorageError(f"cannot rename {place}: {error.strerror}") from error


# Output --------------------------------------------------------------------------------------------------------------


def report(run: LearningRun, target: LearningTarget | None, seconds: float) -> dict[str, Any]:
    """Return the results of a run as plain values."""
    from peakrl.report.analysis import RunAnalysis

    analysis = RunAnalysis.of(run, table=None if target is None else target.table)
    return {
        "problem": run.model.name,
        "untried": None if target is None else untried(target.subject),
        "environment": analysis.on_environment,
        "states": run.model.num_states,
        "pairs": run.model.num_pairs,
        "horizon": run.model.steps,
        "discount": run.discount,
        "constraints": list(run.model.constraint_names),
        "settings": run.settings.as_dict(),
        "episodes": run.episodes,
        "steps": run.steps,
        "seed": run.seed,
        "seconds": seconds,
        "history": "none" if not len(run.history) else "sampled" if run.history.sampled else "exact",
        **analysis.as_dict(),
        "violating_episodes": run.violations,
        "last_violation_episode": run.last_violation_episode,
        "coverage": None if run.coverage is None else run.coverage.as_dict(),
        "infeasible_limits": run.infeasible_limits,
        "infeasibility_proof": [str(line) for line in run.infeasibility_proof],
        "certificates": analysis.certificates,
    }


def untried(subject: Any) -> list[list[Any]] | None:
    """Return the pairs of state and action that a log has never tried; None if it is no log."""
    from peakrl.training.logs import Logs

    return [list(pair) for pair in subject.untried] if isinstance(subject, Logs) else None


def show(answer: dict[str, Any], certificates: Sequence[Certificate], file: Path | None, trust: bool) -> None:
    """Print the results of a run."""
    visited = "visited " if answer["environment"] else ""
    span = f"horizon {answer['horizon']}" if answer["discount"] is None else f"discount {answer['discount']:g}"
    sizes = f"{visited}{answer['states']:,} states, {answer['pairs']:,} state-action pairs, {span}"
    length = f"{answer['episodes']:,} episodes"
    if answer["discount"] is not None:
        length += f" ({answer['steps']:,} steps)"
    say(f"{answer['problem']}: {sizes}; {length} with seed {answer['seed']}")
    if answer["episodes_before"] == answer["episodes"]:
        say("The run was already complete; nothing was learned.")
    elif answer["episodes_before"]:
        say(f"Resumed from episode {answer['episodes_before']:,}.")
    show_metrics(answer)
    if answer["untried"]:
        say(f"pairs never tried: {len(answer['untried']):,} (all with --json)")
    last = answer["last_violation_episode"]
    say(f"violating episodes: {answer['violating_episodes']:,}" + (f" (last: {last:,})" if last else ""))
    if answer["history"] == "sampled" and answer["untried"] is None:
        say(f"history: sampled: {WHY_SAMPLED[answer['environment'] if answer['discount'] is None else None]}")
    if answer["coverage"] is not None:
        say(f"last policy: {answer['coverage']['text']}")
    if answer["infeasible_limits"] is not None:
        say(f"limits: {answer['infeasible_limits']}")
    say(f"verdict: {answer['verdict']}")
    for certificate in certificates:
        say(certificate)
    for line in answer["infeasibility_proof"][:PROOF_LINES]:
        say(f"  {line}")
    if len(answer["infeasibility_proof"]) > PROOF_LINES:
        say(f"  ... and {len(answer['infeasibility_proof']) - PROOF_LINES:,} more (all with --json)")
    if answer["run_file"]:
        path = answer["run_file"]
        judge = ["evaluate", path]
        if answer["environment"]:
            judge = ["certify", str(file), "--policy", path, *["--trust"] * trust]
        # Without a table nothing is known of the value of a discounted run on an environment.
        endless = answer["environment"] and answer["discount"] is not None
        further = [] if endless else [["report", path]]
        further += [judge] if answer["untried"] is None and not (endless and answer.get("policy") is None) else []
        commands = ", ".join(f"`{shlex.join(['peakrl', *words])}`" for words in further)
        say(f"saved to {path}" + (f"; next: {commands}" if commands else ""))


def show_metrics(answer: dict[str, Any]) -> None:
    """Print the metrics of the policies."""
    names = {
        "last policy": "policy", "averaged policy": "averaged_policy", "training episodes": "experience",
        "optimum": "optimum",
    }  # fmt: skip
    numbers = ("value", "below_optimum", "violation", "violation_probability")
    known = {label: answer[key] for label, key in names.items() if answer.get(key) is not None}
    rows = [(label, *(metrics.get(number) for number in numbers)) for label, metrics in known.items()]
    if rows:
        print_table("", ("", "value", "gap to optimum", "violation", "violation probability"), rows)
