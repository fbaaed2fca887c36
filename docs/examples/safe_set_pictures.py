"""Draw the pictures of docs/continuous-states.md: the safe sets of a pendulum and of CartPole-v1, a minute or two."""

import math
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

import peakrl

COLOURS = {
    (): "white", (0,): "#D55E00", (0, 1): "#009E73", (0, 1, 2): "#0072B2", (1, 2): "#CC79A7", (2,): "#56B4E9",
}  # fmt: skip


def swing(x, a, w):
    """Return the next state of Gymnasium's Pendulum-v1."""
    angle, speed = x
    faster = np.clip(speed + (15.0 * np.sin(angle) + 3.0 * a) * 0.05, -8.0, 8.0)
    return [angle + 0.05 * faster, faster]


pendulum = peakrl.ContinuousProblem(
    swing, box={"angle": (-0.5, 0.5), "speed": (-2.5, 2.5)}, actions=[-2.0, 0.0, 2.0], name="pendulum"
)
upright = peakrl.safe_set(pendulum, cells=400)
pole = peakrl.safe_set(peakrl.problems.cartpole(block=5), cells=(48, 40, 42, 40))

mpl.rc("font", size=8)
figure = Figure(figsize=(8.4, 2.9), layout="constrained")
left, *slices = figure.subplots(1, 3)
angle, speed = np.meshgrid(np.linspace(-0.4995, 0.4995, 300), np.linspace(-2.498, 2.498, 300))
masks = upright.mask(np.stack([angle, speed], axis=-1).reshape(-1, 2)).reshape(300, 300, 3)
for actions, colour in COLOURS.items():
    here = (masks == np.isin(range(3), actions)).all(axis=-1)
    label = "torque " + ", ".join(f"{pendulum.actions[k]:g}" for k in actions) if actions else "none is safe"
    left.contourf(angle, speed, here, levels=[0.5, 1], colors=[colour])
    left.fill_between([], [], color=colour, label=label, linewidth=0.3, edgecolor="black")
left.set(title="pendulum: safe actions", xlabel="angle", ylabel="speed")
left.legend(fontsize=5, loc="upper right", handlelength=1, borderpad=0)
angle, spin = np.meshgrid(np.linspace(-0.2, 0.2, 120), np.linspace(-1.99, 1.99, 120))
for axes, position in zip(slices, (0.0, 2.0), strict=True):
    points = [np.full(angle.shape, position), np.full(angle.shape, 0.01), angle, spin]
    count = pole.mask(np.stack(points, axis=-1).reshape(-1, 4)).sum(axis=-1).reshape(angle.shape)
    image = axes.pcolormesh(angle, spin, np.where(count, count, math.nan), vmin=0, vmax=32, cmap="viridis")
    axes.set(title=f"CartPole: position {position:g}, speed 0", xlabel="angle", ylabel="spin")
figure.colorbar(image, ax=slices, label="safe sequences of 5 actions")
figure.savefig(Path(__file__).parents[1] / "_static" / "safe-sets.png", dpi=160, metadata={"Software": None})
