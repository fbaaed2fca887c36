"""Reports and figures.

`peakrl.write_report` writes the page of a run or a sweep. For pages and figures of your own:

    Page                   and its blocks (`Section`, `Chart` of `Series`, `Table`, `Text`); `Page.write` writes one
                           self-contained HTML file
"""

from __future__ import annotations

from peakrl.report.blocks import Block, Chart, Section, Series, Table, Text, settings_table, slug
from peakrl.report.page import Page

__all__ = ["Block", "Chart", "Page", "Section", "Series", "Table", "Text", "settings_table", "slug"]
