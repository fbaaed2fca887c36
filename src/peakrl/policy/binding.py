"""Which model a policy of any kind belongs to."""

from __future__ import annotations

from peakrl.compile import Target, as_model
from peakrl.errors import PolicyError
from peakrl.policy.export import Exported
from peakrl.policy.mixture import AveragedPolicy
from peakrl.policy.tables import Policy, StochasticPolicy
from peakrl.space import StateSpace
from peakrl.tabular import TabularModel

AnyPolicy = Policy | StochasticPolicy | AveragedPolicy


def model_for(target: Target, policy: AnyPolicy) -> TabularModel:
    """Return the policy's model, which must equal `target` (a problem is compiled to find that out)."""
    own = getattr(policy, "model", None)
    if not isinstance(own, StateSpace) or not hasattr(policy, "action"):
        hint = "pass its .policy" if hasattr(policy, "policy") else "make one with Policy.from_rule(model, rule)"
        hint = "the problem comes first, then the policy" if isinstance(target, Exported) else hint
        raise PolicyError(f"{policy!r} is not a policy; {hint}")
    if own is not target:
        model = as_model(target)
        if own.digest != model.digest:
            raise PolicyError(f"the policy belongs to {own!r}, not to {model!r}")
    return as_model(own)
