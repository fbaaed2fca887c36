"""`peakrl.problems.flow_shops`: jobs that pass machine after machine, under a limit on the total power."""

from __future__ import annotations

from typing import TYPE_CHECKING

from peakrl.lazy import lazy_names

__all__ = ["FlowShop", "ShopState", "flow_shop", "johnson_order", "neh_order", "order_policy", "schedule_of"]

if TYPE_CHECKING:
    from peakrl.problems.flow_shops.baselines import johnson_order, neh_order, order_policy, schedule_of
    from peakrl.problems.flow_shops.problem import FlowShop, ShopState, flow_shop

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "baselines": ("johnson_order", "neh_order", "order_policy", "schedule_of"),
        "problem": ("FlowShop", "ShopState", "flow_shop"),
    },
)
