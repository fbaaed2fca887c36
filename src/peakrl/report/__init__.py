"""Reports and figures.

`peakrl.write_report` writes the page of a run or a sweep. For pages and figures of your own:

    Page                   and its blocks (`Section`, `Chart` of `Series`, `Table`, `Settings`, `Text`);
                           `Page.write` writes one self-contained HTML file
    peakrl.report.style    colours and style of static figures
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from peakrl.lazy import lazy_names

__all__ = ["Block", "Chart", "Page", "Section", "Series", "Settings", "Table", "Text", "slug"]

if TYPE_CHECKING:
    from peakrl.report.blocks import Block, Chart, Section, Series, Settings, Table, Text, slug
    from peakrl.report.page import Page

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "blocks": ("Block", "Chart", "Section", "Series", "Settings", "Table", "Text", "slug"),
        "page": ("Page",),
    },
)
