"""Small station files in the form of TMY3, for tests."""

from __future__ import annotations


def station_text(days, months=None):
    """Return a station file whose days have these hours of radiation, each the first of its month and so on."""
    lines = ['1,"NOWHERE",XX,0.0,0.0,0.0,0', "Date (MM/DD/YYYY),Time (HH:MM),ETR (W/m^2),GHI (W/m^2),GHI source"]
    for place, hours in enumerate(days):
        month = 1 if months is None else months[place]
        for hour, radiation in enumerate(hours, start=1):
            lines.append(f"{month:02}/{place % 28 + 1:02}/1999,{hour:02}:00,0,{radiation},1")
    return "\n".join(lines) + "\n"
