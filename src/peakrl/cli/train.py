"""`peakrl train`: learn a problem, save the run, and print the result."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from peakrl.cli.output import say
from peakrl.cli.trusting import read_problem, trusting
from peakrl.errors import SettingsError, StorageError

if TYPE_CHECKING:
    from peakrl.certificates.certificate import Certificate
    from peakrl.gym.env_spec import LearningTarget
    from peakrl.report.live import LiveView
    from peakrl.training.trainer import LearningRun, RunView, Watch

PROOF_LINES = 12
#: Why a history is sampled, by whether the target is an environment.
WHY_SAMPLED = {
    True: "for environments only the rewards of episodes are known",
    False: "rewards of episodes (the exact curve of a large model would take minutes; "
    "history = 1000 in the file records it anyway, every 1,000 episodes)",
}


@trusting
def train(
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="FILE", help="A problem file (see `peakrl init`) or a built-in problem (see `peakrl solve`)."
        ),
    ] = None,
    episodes: Annotated[
        int | None, typer.Option(help="Total number of episodes; default: that of the file or of the resumed run.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the run; default: that of the file.")] = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="RUN", help="Save the run here, with checkpoints while it learns."),
    ] = None,
    resume: Annotated[
        Path | None, typer.Option(metavar="RUN", help="Resume this run; FILE is required for environments only.")
    ] = None,
    checkpoint: Annotated[
        Path | None, typer.Option(metavar="RUN", help="Write checkpoints here; default: --out, or that of the file.")
    ] = None,
    checkpoint_every: Annotated[
        int | None, typer.Option(metavar="N", help="Episodes between checkpoints; default: about every 30 seconds.")
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Start again even if --out or --checkpoint contains a run.")
    ] = False,
    live: Annotated[
        bool, typer.Option("--live", help="Serve the report page on this computer while it learns.")
    ] = False,
    port: Annotated[int | None, typer.Option(help="Port of --live; default: any free port.")] = None,
    tensorboard: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Log the run for TensorBoard to this folder.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Learn a problem. Repeating the command with the same --out resumes an interrupted run.

    Exit code 1 if the problem is infeasible.
    """
    from peakrl.cli.output import print_json
    from peakrl.storage import ready

    begun = time.perf_counter()
    ready(out, checkpoint)
    if resume is not None and seed is not None:
        raise SettingsError("--seed cannot be changed in a resumed run: omit it")
    if resume is None and file is None:
        raise SettingsError("name a problem file (`peakrl init NAME` writes one), or pass a run with --resume")
    try:
        name = (out or resume or file or Path("run")).name
        begun_at: list[int] = []
        with warnings.catch_warnings(), watching(name, live, port, tensorboard) as (view, watchers):
            vars(warnings)["showwarning"] = show_warning

            def watch(moment: RunView) -> None:
                begun_at.append(moment.episodes)
                for each in watchers:
                    each(moment)

            if resume is not None:
                run, kept, target = resumed(resume, file, episodes, out, checkpoint, checkpoint_every, overwrite, watch)
            elif file is not None:
                run, kept, target = learned(file, episodes, seed, out, checkpoint, checkpoint_every, overwrite, watch)
            if view is not None:
                view.finish(run)
    except KeyboardInterrupt:
        place = checkpoint or out or resume
        kept_in = f"; the run so far is in {place}" if place is not None and place.exists() else ""
        say(f"peakrl: interrupted{kept_in}", error=True)
        raise typer.Exit(130) from None
    answer = report(run, target, time.perf_counter() - begun)
    answer["episodes_before"] = begun_at[0] if begun_at else 0
    answer["run_file"] = None if kept is None else str(kept)
    certificates = answer.pop("certificates")
    if as_json:
        print_json(answer)
    else:
        show(answer, certificates, file)
    raise typer.Exit(1 if answer["feasible"] is False else 0)


@contextmanager
def watching(
    name: str, live: bool, port: int | None, tensorboard: Path | None
) -> Iterator[tuple[LiveView | None, list[Watch]]]:
    """Yield the live page, if requested, and the functions that watch the run."""
    if port is not None and not live:
        raise SettingsError("--port is the port of --live: pass --live too")
    view: LiveView | None = None
    watchers: list[Watch] = []
    with ExitStack() as stack:
        if tensorboard is not None:
            from peakrl.report.event_log import EventLog

            log = EventLog(tensorboard)
            stack.callback(log.close)
            watchers.append(log.watch)
        if live:
            from peakrl.report.live import LiveView

            view = stack.enter_context(LiveView(name, port or 0))
            watchers.append(view.watch)
            say(f"peakrl: live page at {view.address} (this computer only)", error=True)
        yield view, watchers


def learned(
    file: Path,
    episodes: int | None,
    seed: int | None,
    out: Path | None,
    checkpoint: Path | None,
    every: int | None,
    overwrite: bool,
    watch: Watch | None = None,
) -> tuple[LearningRun, Path | None, LearningTarget | None]:
    """Learn the problem of a file; return the run, its file and its target."""
    from peakrl.training.learn import learn

    described = read_problem(file)
    asked = described.run
    place = checkpoint or out or described.checkpoint
    refuse_loss(out, place, overwrite)
    target = described.target(progress=True)
    with set_aside(place if overwrite else None):
        run = learn(
            target.subject,
            described.settings,
            assumptions=described.assumptions,
            episodes=asked.episodes if episodes is None else episodes,
            seed=asked.seed if seed is None else seed,
            history=asked.history,
            average=asked.average,
            checkpoint=place,
            checkpoint_every=(every or asked.checkpoint_every) if place is not None else every,
            progress=True,
            watch=watch,
        )
    if out is not None and out != place:
        run.save(out)
    return run, out or place, target


def resumed(
    path: Path,
    file: Path | None,
    episodes: int | None,
    out: Path | None,
    checkpoint: Path | None,
    every: int | None,
    overwrite: bool,
    watch: Watch | None = None,
) -> tuple[LearningRun, Path | None, LearningTarget | None]:
    """Resume a run file; the problem file is needed for environments and for runs without their model."""
    from peakrl.training.learn import resume

    target = target_for(path, file)
    place = checkpoint or out or path
    for other in {out, place} - {None, path}:
        refuse_loss(other, None, overwrite)
    run = resume(
        path, episodes=episodes, checkpoint=place, checkpoint_every=every, progress=True, watch=watch,
        **({} if target is None else {"env" if target.is_environment else "model": target.subject}),
    )  # fmt: skip
    if (out or place) != path:
        run.save(out or place)
    return run, out or place, target


def target_for(path: Path, file: Path | None) -> LearningTarget | None:
    """Return the target of a resumed run; None if the run file contains its model."""
    from peakrl.records import kind_of
    from peakrl.training.run_file import ENVIRONMENT_KIND

    if file is not None:
        return read_problem(file).target(progress=True)
    if kind_of(path) == ENVIRONMENT_KIND:
        raise SettingsError(f"{path} is a run on an environment: name its problem file too")
    return None


def refuse_loss(out: Path | None, place: Path | None, overwrite: bool) -> None:
    """Raise if another run would be lost; `learn` resumes from `place`."""
    for path in (out, place):
        if path is not None:
            from peakrl.records import kind_of
            from peakrl.storage import ready

            ready(path)
            if path.exists() and path != place and not overwrite:
                raise StorageError(f"{path} already exists: choose another --out, or pass --overwrite")
            if overwrite and path.exists() and path.stat().st_size and kind_of(path) is None:
                raise StorageError(f"{path} is not a file of peakrl and is not overwritten: remove it yourself")


@contextmanager
def set_aside(path: Path | None) -> Iterator[None]:
    """Move a file that is to be overwritten aside, and restore it if no new file was written."""
    from peakrl.storage import writable

    if path is None or not path.exists():
        yield
        return
    place = writable(path)  # the target of a link is overwritten, not the link
    aside = place.with_name(f"{place.name[:60]}.before")
    if aside.exists():
        raise StorageError(f"{aside} already exists, perhaps from an interrupted --overwrite: move or remove it")
    try:
        os.replace(place, aside)
    except OSError as error:
        raise StorageError(f"cannot rename {place}: {error.strerror}") from error
    try:
        yield
    finally:
        if place.exists():
            aside.unlink()
        else:
            os.replace(aside, place)


# Output --------------------------------------------------------------------------------------------------------------


def report(run: LearningRun, target: LearningTarget | None, seconds: float) -> dict[str, Any]:
    """Return the results of a run as plain values."""
    from peakrl.report.analysis import RunAnalysis

    analysis = RunAnalysis.of(run, table=None if target is None else target.table)
    return {
        "problem": run.model.name,
        "environment": analysis.on_environment,
        "states": run.model.num_states,
        "pairs": run.model.num_pairs,
        "horizon": run.model.horizon,
        "constraints": list(run.model.constraint_names),
        "settings": run.settings.as_dict(),
        "episodes": run.episodes,
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


def show(answer: dict[str, Any], certificates: Sequence[Certificate], file: Path | None) -> None:
    """Print the results of a run."""
    visited = "visited " if answer["environment"] else ""
    sizes = f"{visited}{answer['states']:,} states, {answer['pairs']:,} state-action pairs, horizon {answer['horizon']}"
    say(f"{answer['problem']}: {sizes}; {answer['episodes']:,} episodes with seed {answer['seed']}")
    if answer["episodes_before"] == answer["episodes"]:
        say("The run was already complete; nothing was learned.")
    elif answer["episodes_before"]:
        say(f"Resumed from episode {answer['episodes_before']:,}.")
    show_metrics(answer)
    last = answer["last_violation_episode"]
    say(f"violating episodes: {answer['violating_episodes']:,}" + (f" (last: {last:,})" if last else ""))
    if answer["history"] == "sampled":
        say(f"history: sampled: {WHY_SAMPLED[answer['environment']]}")
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
        judge = f"certify {file} --policy {path}" if answer["environment"] else f"evaluate {path}"
        say(f"saved to {path}; next: `peakrl report {path}`, `peakrl {judge}`")


def show_metrics(answer: dict[str, Any]) -> None:
    """Print the metrics of the policies."""
    from peakrl.cli.output import print_table

    names = {
        "last policy": "policy", "averaged policy": "averaged_policy", "training episodes": "experience",
        "optimum": "optimum",
    }  # fmt: skip
    numbers = ("value", "below_optimum", "violation", "violation_probability")
    known = {label: answer[key] for label, key in names.items() if answer.get(key) is not None}
    rows = [(label, *(metrics.get(number) for number in numbers)) for label, metrics in known.items()]
    if rows:
        print_table("", ("", "value", "gap to optimum", "violation", "violation probability"), rows)


def show_warning(message: Warning | str, *_: Any) -> None:
    """Print a warning to stderr."""
    say(f"peakrl: {message}", error=True)
