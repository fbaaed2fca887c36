"""Random scheduling instances for tests, from one seed, and the CP-SAT answer to them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from peakrl.problems import Job


def random_jobs(seed, *, most=8, random_times=False, releases=False):
    """Draw up to `most` jobs; deadlines are tight enough that a good part of the instances is infeasible."""
    rng = np.random.default_rng(seed)
    count = int(rng.integers(1, most + 1))
    take = rng.integers(1, 10, count)
    total = int(take.sum())
    jobs = []
    for duration in take.tolist():
        due = int(rng.integers(1, total + 1))
        deadline = int(rng.integers(max(duration, total // 4), max(duration, int(1.2 * total)) + 1))
        weight = float(rng.integers(1, 6)) / 2
        if random_times and rng.random() < 0.7:
            times = np.unique(np.append(rng.integers(1, duration + 1, rng.integers(1, 4)), duration))
            chances = rng.dirichlet(np.ones(len(times)))
            jobs.append(Job(dict(zip(times.tolist(), chances.tolist(), strict=True)), due, deadline, weight))
        else:
            jobs.append(Job(duration, due, deadline, weight))
    if releases:
        later = rng.integers(0, total // 2 + 1, count).tolist()
        jobs = [replace(job, release=at, deadline=job.deadline + at) for job, at in zip(jobs, later, strict=True)]
    return jobs


def constraint_programme(jobs, objective):
    """Return the optimum by PyJobShop (CP-SAT), None where no order meets every deadline."""
    from pyjobshop import Model, SolveStatus

    model = Model()
    machine = model.add_machine()
    for job in jobs:
        task = model.add_task(job=model.add_job(due_date=job.due, deadline=job.deadline))
        model.add_mode(task, machine, job.processing)
    model.set_objective(**{f"weight_{objective}": 1})
    result = model.solve(display=False, num_workers=1)
    if result.status == SolveStatus.INFEASIBLE:
        return None
    assert result.status == SolveStatus.OPTIMAL
    # CP-SAT returns its whole numbers as floats with a rounding error.
    optimum = round(result.objective)
    assert abs(result.objective - optimum) < 1e-6
    return optimum
