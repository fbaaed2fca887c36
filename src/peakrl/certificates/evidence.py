"""What a certificate's file holds of a model and a policy: numbers alone, no labels, as `verify` reads them."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from peakrl.policy.mixture import AnyPolicy
from peakrl.policy.tables import Policy
from peakrl.tabular import TabularModel

Part = tuple[dict[str, Any], dict[str, NDArray[Any]]]


def model_evidence(model: TabularModel) -> Part:
    """Return the numbers of a model, those that its digest is made of; what states are called is no part of them."""
    plain = {
        "name": model.name,
        "digest": model.digest,
        "horizon": int(model.horizon),
        "stationary": bool(model.stationary),
        "stride": int(model.payoffs.stride),
        "constraint_names": list(model.constraint_names),
        "constraint_bounds": [float(bound) for bound in model.constraint_bounds],
        "reward_range": [float(end) for end in model.reward_range],
    }
    return plain, {f"model.{name}": array for name, array in model.meaning().items()}


def policy_evidence(policy: AnyPolicy) -> Part:
    """Return the decisions of a policy, by number."""
    plain, arrays = policy._stored()
    if isinstance(policy, Policy):  # whatever is smaller in a file: who verifies knows rows only
        plain, arrays = {"form": "deterministic"}, {"rows": policy.rows}
    return {"policy": plain}, {f"policy.{name}": array for name, array in arrays.items()}
