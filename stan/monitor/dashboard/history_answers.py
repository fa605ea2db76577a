"""The history of figures as charts need it: times in Unix ms, and so many points as a chart shows. Pure."""

from collections.abc import Mapping
from math import isnan
from typing import Any

from stan import limits
from stan.monitor.dashboard.formatting import millis
from stan.monitor.dashboard.measured_history import COLUMNS, MeasuredHistory, Point
from stan.monitor.dashboard.tables import BadQuestionError

Json = dict[str, Any]


def history_answer(measured: MeasuredHistory, query: Mapping[str, str], now: int) -> Json:
    """Return the figures over `span`, hour or week; *now*: Unix ns. Raises BadQuestionError."""
    tier = measured.tiers.get(query.get("span", "hour"))
    if tier is None:
        raise BadQuestionError(f"span: one of {', '.join(measured.tiers)}")
    begin = now - tier.step * (tier.points.maxlen or 0)
    points = tier.since(begin, limits.DASHBOARD_CHART_POINTS_MAX)
    return {"begin": millis(begin), "end": millis(now), "columns": COLUMNS, "points": list(map(_shown, points))}


def lately(measured: MeasuredHistory, now: int) -> list[list[float | int | None]]:
    """Return the points of the charts of the overview."""
    points = measured.tiers["hour"].since(now - limits.DASHBOARD_OVERVIEW_SPAN, limits.DASHBOARD_CHART_POINTS_MAX)
    return list(map(_shown, points))


def _shown(point: Point) -> list[float | int | None]:
    """Return time and figures; None: not known."""
    return [millis(point.at), *(None if isnan(value) else float(f"{value:.6g}") for value in point.values)]
