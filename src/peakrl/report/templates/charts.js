// Charts, tables and the theme of the page. `window.peakrl` is what the other scripts use.
(() => {
  "use strict";
  const root = document.documentElement;
  const data = JSON.parse(document.getElementById("page-data").textContent);
  const all = (selector, where = document) => [...where.querySelectorAll(selector)];
  const coarse = matchMedia("(pointer: coarse)").matches;
  const config = {
    // The page has its own buttons below a chart.
    responsive: true, displayModeBar: false,
  };
  // What the reader has changed: {hidden, log_x, log_y, revision} by chart.
  const states = {};
  const drawn = new Set();
  const drawers = {};

  // --- theme ---
  const wide = matchMedia("(prefers-color-scheme: dark)");
  const dark = () => (root.dataset.theme ? root.dataset.theme === "dark" : wide.matches);
  const colour = (name) => getComputedStyle(root).getPropertyValue(`--${name}`).trim();
  const translucent = (hex, alpha) => {
    const part = (at) => parseInt(hex.slice(at, at + 2), 16);
    return `rgba(${part(1)},${part(3)},${part(5)},${alpha})`;
  };

  function themed() {
    const button = document.getElementById("theme");
    button.textContent = dark() ? "light" : "dark";
    drawn.forEach((id) => draw(id));
    document.dispatchEvent(new Event("themed"));
  }

  function remember(theme) {
    try { localStorage.setItem("peakrl-theme", theme); } catch { /* a page from a file may have no storage */ }
  }

  document.getElementById("theme").addEventListener("click", () => {
    root.dataset.theme = dark() ? "light" : "dark";
    remember(root.dataset.theme);
    themed();
  });
  wide.addEventListener("change", themed);
  try {
    const kept = localStorage.getItem("peakrl-theme");
    if (kept === "light" || kept === "dark") root.dataset.theme = kept;
  } catch { /* as above */ }

  // --- charts ---
  function axis(title, log) {
    return {
      title: { text: title, standoff: 8, font: { size: 12 } }, type: log ? "log" : undefined, automargin: true,
      gridcolor: colour("grid"), linecolor: colour("line"), zerolinecolor: colour("line"), showline: true,
      exponentformat: "none", separatethousands: true,
    };
  }

  // Steps and episodes are integers: no ticks in between.
  function wholeTicks(values) {
    const found = values.filter((value) => typeof value === "number");
    const length = Math.max(...found) - Math.min(...found);
    return found.length && found.every(Number.isInteger) && length <= 12 ? { tickmode: "linear", tick0: 0, dtick: 1 } : {};
  }

  // Ticks of a logarithmic axis: 1, 2 and 5 if it is short, powers of ten if it is long.
  function logTicks(values) {
    const above = values.filter((value) => value > 0);
    if (!above.length) return {};
    const low = Math.log10(Math.min(...above)), high = Math.log10(Math.max(...above));
    const parts = high - low <= 2.5 ? [1, 2, 5] : [1], every = Math.max(1, Math.ceil((high - low) / 7)), found = [];
    for (let power = Math.floor(low) - every; power <= Math.ceil(high) + every; power += parts.length > 1 ? 1 : every) {
      for (const part of parts) found.push(part * 10 ** power);
    }
    return { tickmode: "array", tickvals: found, ticktext: found.map((value) => (value >= 1e-4 ? short(value) : value.toExponential(0))) };
  }

  function layout(spec, more = {}) {
    return {
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", showlegend: false, hovermode: "closest",
      font: { family: getComputedStyle(document.body).fontFamily, size: 12, color: colour("ink") },
      margin: { l: 48, r: 12, t: 10, b: 40 }, dragmode: coarse ? false : "zoom",
      hoverlabel: { bgcolor: colour("head"), bordercolor: colour("line"), font: { color: colour("ink") }, namelength: -1 },
      ...more,
    };
  }

  // A logarithmic axis has no 0: it ends at the chart's floor, or just below its smallest positive number.
  const positive = (spec) => Math.min(...spec.series.flatMap((s) => s.y).filter((y) => y > 0));
  const floorOf = (spec, state) => (state.log_y ? Math.max(spec.floor ?? 0, positive(spec) / 3) : -Infinity);

  function band(series, spec, state) {
    const paint = translucent(colour(series.colour), 0.14);
    const floor = floorOf(spec, state);
    const least = series.y.every((y) => y >= 0) ? 0 : -Infinity;
    const up = series.y.map((y, i) => Math.max(series.high ? series.high[i] : y + series.std[i], floor));
    const down = series.y.map((y, i) => Math.max(series.low ? series.low[i] : y - series.std[i], floor, least));
    return {
      x: [...series.x, ...series.x.slice().reverse()], y: [...up, ...down.reverse()], fill: "toself", fillcolor: paint,
      line: { width: 0, color: paint }, mode: "lines", hoverinfo: "skip", name: `${series.name}, band`,
    };
  }

  // Hover text: the number, also if a logarithmic axis cannot show it, and its spread.
  const spread = (series, i) => (series.std ? ` ± ${short(series.std[i])}`
    : series.low ? ` (${short(series.low[i])} to ${short(series.high[i])})` : "");
  const short = (value) => (value === null ? "" : Number(value.toPrecision(5)).toLocaleString("en", { maximumSignificantDigits: 5 }));

  function trace(series, single, spec, state) {
    const paint = colour(series.colour);
    const theirs = series.name.startsWith("paper: ");
    const floor = floorOf(spec, state);
    return {
      x: series.x, y: series.y.map((y) => (y === null ? null : Math.max(y, floor))), name: series.name, mode: series.mode,
      customdata: series.y.map((y, i) => short(y) + spread(series, i)),
      line: { color: paint, dash: series.dash, width: series.level ? 1.6 : 2 },
      marker: { color: theirs ? colour("panel") : paint, size: theirs || series.x.length === 1 ? 9 : series.mode === "markers" && series.x.length > 60 && !single ? 4 : series.mode === "markers" && !single ? 10 : 7, line: { color: paint, width: theirs ? 2 : 0 } },
      error_y: single && series.std ? { type: "data", array: series.std, color: paint, thickness: 1.5 } : undefined,
      hovertemplate: `${series.level || single ? "" : "%{x:,}: "}%{customdata}<extra>${escaped(series.name)}</extra>`,
    };
  }

  // plotly interprets a few tags in names; a label is plain text.
  const escaped = (text) => text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;").replace(/%\{/g, "% {");

  drawers.chart = (id, spec) => {
    const state = states[id];
    const shown = spec.series.filter((_, index) => !state.hidden.has(index));
    const single = spec.series.every((series) => series.x.length === 1);
    const bands = shown.filter((series) => (series.std || series.low) && !single).map((series) => band(series, spec, state));
    const lines = shown.map((series) => trace(series, single, spec, state));
    Plotly.react(id, [...bands, ...lines], layout(spec, {
      xaxis: { ...axis(single ? "" : spec.x, state.log_x && !single), ...(single ? {} : (state.log_x ? logTicks : wholeTicks)(spec.series.flatMap((s) => s.x))) },
      yaxis: { ...axis(spec.y, state.log_y), ...(state.log_y ? logTicks(lines.flatMap((line) => line.y)) : {}) },
      // Keep the zoom until an axis changes between linear and logarithmic.
      uirevision: `${state.log_x}${state.log_y}${state.revision}`,
    }), config);
  };

  function stateOf(id) {
    return (states[id] ??= { hidden: new Set(), log_x: data[id].log_x, log_y: data[id].log_y, revision: 0 });
  }

  // Before plotly is loaded this only updates the state; the chart is drawn when it scrolls into view.
  function draw(id) {
    const state = stateOf(id);
    if (!window.Plotly) return;
    drawn.add(id);
    drawers[data[id].kind](id, data[id], state);
  }

  function zoom(id, factor) {
    const state = states[id], element = document.getElementById(id);
    if (factor === 0) {
      state.revision += 1;
      draw(id);
      return;
    }
    const change = {};
    for (const name of ["xaxis", "yaxis"]) {
      const [low, high] = element._fullLayout[name].range;
      const middle = (low + high) / 2, half = ((high - low) / 2) * factor;
      change[`${name}.range`] = [middle - half, middle + half];
    }
    Plotly.relayout(id, change);
  }

  // One listener for the whole page.
  document.addEventListener("change", (event) => {
    const box = event.target.closest("[data-legend] [data-series]"), select = event.target.closest("[data-filter]");
    if (box) {
      const id = box.closest("[data-legend]").dataset.legend;
      stateOf(id).hidden[box.checked ? "delete" : "add"](Number(box.dataset.series));
      draw(id);
    }
    if (select) filter(select);
  });
  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-log], [data-zoom]");
    if (!button) return;
    const id = button.dataset.chart;
    if (button.dataset.log) {
      const key = button.dataset.log === "x" ? "log_x" : "log_y";
      stateOf(id)[key] = !states[id][key];
      button.setAttribute("aria-pressed", String(states[id][key]));
      draw(id);
    } else if (window.Plotly) {
      if (!drawn.has(id)) draw(id);
      zoom(id, Number(button.dataset.zoom));
    }
  });

  // --- tables and downloads ---
  const cell = (text) => (/[",\n\r]/.test(text) ? `"${text.replace(/"/g, '""')}"` : text);
  const csv = (rows) => rows.map((row) => row.map((value) => cell(String(value ?? ""))).join(",")).join("\n") + "\n";

  function save(name, text) {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text], { type: "text/csv;charset=utf-8" }));
    link.download = name;
    document.body.append(link);
    link.click();
    link.remove();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  }

  const tableRows = (table) => [...table.rows].map((row) => [...row.cells].map((c) => c.dataset.value ?? c.textContent));

  // A map as it is shown now; curves with their spread.
  function chartRows(id) {
    const spec = data[id];
    if (!spec.series) {
      const plot = document.getElementById(id), map = plot.data[0], title = (axis) => plot.layout[axis].title.text;
      const rows = map.text.flatMap((line, i) => line.map((text, j) => [map.x[j], map.y[i], text]));
      return [[title("xaxis"), title("yaxis"), "value"], ...rows.filter((row) => row[2] !== "")];
    }
    const rows = [["series", spec.x || "x", spec.y, "standard deviation", "low", "high"]];
    for (const series of spec.series) {
      const at = (name, i) => (series[name] ? series[name][i] : null);
      series.y.forEach((y, i) => rows.push([series.name, series.x[i], y, at("std", i), at("low", i), at("high", i)]));
    }
    return rows;
  }

  // The page writes titles and legends in HTML; a picture has its own.
  function downloadPicture(id) {
    const plot = document.getElementById(id), curves = data[id].series !== undefined;
    const traces = plot.data.map((one) => ({ ...one, name: one.name && escaped(one.name), showlegend: one.fill !== "toself" }));
    if (!curves && traces[0].colorbar) traces[0].showscale = true;
    const dress = {
      title: { text: escaped(document.getElementById(`${id}-title`).textContent), font: { size: 15 } }, paper_bgcolor: colour("panel"),
      showlegend: curves || plot.layout.showlegend, legend: { orientation: "h", y: -0.2 }, margin: { l: 70, r: 20, t: 50, b: 60 },
    };
    const size = { width: 900, height: 560, scale: 2 };
    Plotly.downloadImage({ data: traces, layout: { ...plot.layout, ...dress } }, { format: "png", filename: id, ...size });
  }

  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-csv-table], [data-csv-chart], [data-png]");
    if (!button) return;
    const { csvTable: table, csvChart: chart, png } = button.dataset;
    if (table) save(`${table}.csv`, csv(tableRows(document.getElementById(table))));
    else if (chart) save(`${chart}.csv`, csv(chartRows(chart)));
    else downloadPicture(png);
  });

  function filter(select) {
    const column = Number(select.dataset.column);
    for (const row of document.getElementById(select.dataset.filter).tBodies[0].rows) {
      row.hidden = select.value !== "" && row.cells[column].textContent !== select.value;
    }
  }

  // --- start ---
  window.peakrl = { data, stateOf, drawers, draw, drawn, colour, layout, axis, config, escaped, dark, all };
  const plots = () => all(".plot").filter((element) => data[element.id]);
  // Draw a chart when it scrolls into view.
  const watcher = new IntersectionObserver((entries) => {
    for (const entry of entries.filter((one) => one.isIntersecting)) {
      watcher.unobserve(entry.target);
      draw(entry.target.id);
    }
  }, { rootMargin: "300px" });
  const observe = () => plots().forEach((element) => drawn.has(element.id) || watcher.observe(element));

  // plotly takes a second to load; everything else works before that.
  function loadPlotly() {
    const script = document.createElement("script");
    script.textContent = document.getElementById("plotly-source").textContent;
    document.body.append(script);
    observe();
    // Charts are printed in the light theme.
    let before;
    addEventListener("beforeprint", () => {
      before = root.dataset.theme;
      root.dataset.theme = "light";
      plots().forEach((element) => draw(element.id));
    });
    addEventListener("afterprint", () => {
      if (before === undefined) delete root.dataset.theme;
      else root.dataset.theme = before;
      themed();
    });
    root.dataset.charts = String(Math.round(performance.now()));
  }

  document.addEventListener("DOMContentLoaded", () => {
    document.getElementById("theme").textContent = dark() ? "light" : "dark";
    // Milliseconds since the page was opened.
    root.dataset.ready = String(Math.round(performance.now()));
    requestAnimationFrame(() => setTimeout(loadPlotly));
  });
})();
