"""`load`: read any file of peakrl by the kind that it declares."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from peakrl.certificates.certificate import CERTIFICATE, Certificate
from peakrl.continuous.files import GRID_SAFE_SET
from peakrl.continuous.safe_set import load_grid_safe_set
from peakrl.errors import SettingsError, StorageError
from peakrl.gym.adapter import is_environment
from peakrl.learners.assumptions import Assumptions
from peakrl.model_file import load_model
from peakrl.policy.export import POLICY
from peakrl.policy.files import load_policy
from peakrl.records import kind_of, read_record
from peakrl.safety.safe_set import SAFE_SET, load_safe_set
from peakrl.tabular import MODEL
from peakrl.training.learn import load_run
from peakrl.training.run_file import ENVIRONMENT_RUN, RUN


def load(path: str | Path, target: Any = None, *, assumptions: Assumptions | None = None) -> Any:
    """Return what a file of peakrl contains: a model, policy, run, safe set or certificate.

    Parameters
    ----------
    path
        A file that `save` of one of these objects wrote, or a checkpoint of a run.
    target
        The problem, model or environment that the file belongs to, if the file does not contain it: policies of
        problems, safe sets of continuous problems or saved without their model, and models with labels that a file
        cannot hold. A run on an environment can be read without it.
    assumptions
        For runs only: the `assumptions` that `learn` was called with, if they hold functions.

    Returns
    -------
    TabularModel, Policy, StochasticPolicy, AveragedPolicy, LearningRun, SafeSet, GridSafeSet or Certificate
        A certificate is returned as the file states it; `peakrl.verify` checks it.

    Examples
    --------
    >>> import peakrl, pathlib, tempfile
    >>> model = peakrl.compile_model(peakrl.problems.scheduling_example(1))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "example.model")
    ...     model.save(path)
    ...     peakrl.load(path).digest == model.digest
    True
    """
    kind = kind_of(path)
    model = None if is_environment(target) else target
    if kind in (RUN.name, ENVIRONMENT_RUN.name):
        return load_run(path, target, assumptions=assumptions)
    if assumptions is not None:
        raise SettingsError(f"assumptions belong to a run; {path} is not one")
    if kind == MODEL.name:
        return load_model(path)
    if kind == POLICY.name:
        return load_policy(path, model)
    if kind == SAFE_SET.name:
        return load_safe_set(path, model)
    if kind == GRID_SAFE_SET.name:
        return load_grid_safe_set(path, target)
    if kind == CERTIFICATE.name:
        return Certificate.load(path)
    read_record(path, str(kind))  # says what is wrong with a file that is not readable or not ours
    raise StorageError(f"{path} holds a {kind!r}; load reads models, policies, runs, safe sets and certificates")
