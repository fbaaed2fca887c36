"""plotly's script for the page, told to start no more kinds of charts than the page draws.

The bundle that the plotly package ships holds some fifty kinds of charts. Its last module starts them all, one call for
each, which takes a browser most of the time that a page needs to open:

    core.register([bar(), box(), heatmap(), ...])          the names are shortened in the bundle

Lines and points belong to the core. The list is cut to the other kinds that the page draws; nothing else is touched.
Where a bundle is not of this form it is used as it is: slower to start, and otherwise the same.
"""

from __future__ import annotations

import re
from functools import cache

#: Kinds of charts beyond lines and points.
KINDS = ("bar", "heatmap")
#: How far behind its beginning a module says what kind it is.
REACH = 6000
REGISTERS = re.compile(r"\.register\(\[((?:[\w$]+\(\),?)+)\]\)")
HANDS_ON = re.compile(r"[\w$]+\(\([\w$]*,[\w$]*\)=>\{[^{}]*\.exports=([\w$]+)\(\)\}\)")
SAYS_KIND = re.compile(r'moduleType:"trace",name:"(\w+)"')


@cache
def plotly_source() -> str:
    """Return plotly's script, safe to stand in a script element."""
    from plotly.offline import get_plotlyjs

    return reduced(get_plotlyjs()).replace("</script", "<\\/script")


def reduced(source: str) -> str:
    """Return a bundle that starts only the kinds that the page draws; the same bundle where that cannot be done."""
    found = REGISTERS.search(source)
    if found is None:
        return source
    kinds = {kind_of(source, name): name for name in found[1].replace("()", "").split(",")}
    if any(kind not in kinds for kind in KINDS):
        return source
    kept = ",".join(f"{kinds[kind]}()" for kind in KINDS)
    return source[: found.start(1)] + kept + source[found.end(1) :]


def kind_of(source: str, name: str) -> str | None:
    """Return the kind of chart that a module of the bundle is; the module hands on to the one that says so."""
    handed = HANDS_ON.match(source, after(source, name))
    if handed is None:
        return None
    begin = after(source, handed[1])
    said = SAYS_KIND.search(source, begin, begin + REACH)
    return None if said is None else said[1]


def after(source: str, name: str) -> int:
    """Return where the definition of a module begins; the end of the bundle where there is none."""
    # Plain searches: an expression that may begin anywhere takes seconds on five megabytes.
    found = [source.find(f"{before}{name}=") for before in ("var ", ",", ";")]
    places = [place for place in found if place >= 0]
    return source.index("=", min(places)) + 1 if places else len(source)
