"""A network behind a shield: sb3-contrib's MaskablePPO learns without one violation; its policy is certified exactly.

Needs `pip install '.[sb3]'`; `make maskable-ppo` runs it.
"""

from sb3_contrib import MaskablePPO

import peakrl

problem = peakrl.problems.energy_harvesting(horizon=10, battery=6, max_arrival=6, mean=3, std=2, peak_power=3)
model = peakrl.compile_model(problem)
safe = peakrl.safe_set(model)
env = peakrl.to_gymnasium(model, shielded=True)

agent = MaskablePPO("MlpPolicy", env, n_steps=500, batch_size=100, gamma=1.0, seed=0, device="cpu")
agent.learn(20_000)
print(f"{env.steps:,} steps of learning, {env.replaced} actions replaced: the masks had left only safe ones")

numbers = {state: number for number, state in enumerate(model.state_labels)}


def decide(step, state):
    """What the network would do, among what is safe."""
    masks = safe.mask(state, step)  # read-only, which torch does not like
    action, _ = agent.predict(numbers[state], action_masks=masks.copy(), deterministic=True)
    return model.action_labels[int(action)]


found = peakrl.evaluate(model, peakrl.Policy.from_rule(model, decide))
best = peakrl.solve(model)
print(f"value {found.value:.4f} of {best.value:.4f}, violation probability {found.violation_probability}")
assert env.replaced == 0
assert found.violation_probability == 0.0
assert found.value <= best.value + 1e-9
