// Maps, Gantt charts and the policy explorer.
(() => {
  "use strict";
  const { data, drawers, draw, stateOf, colour, layout, axis, config, escaped, all } = window.peakrl;

  // --- compact data ---
  function unpack(text, Kind) {
    const raw = atob(text), bytes = new Uint8Array(raw.length);
    for (let i = 0; i < raw.length; i += 1) bytes[i] = raw.charCodeAt(i);
    return new Kind(bytes.buffer);
  }
  function unrun(pairs) {
    let total = 0;
    for (let i = 1; i < pairs.length; i += 2) total += pairs[i];
    const values = new Int32Array(total);
    for (let i = 0, at = 0; i < pairs.length; at += pairs[i + 1], i += 2) values.fill(pairs[i], at, at + pairs[i + 1]);
    return values;
  }
  const number = (value) => (Number.isFinite(value)
    ? Number(value.toPrecision(6)).toLocaleString("en", { maximumSignificantDigits: 6 }) : "−∞");

  // --- maps ---
  const scale = () => (window.peakrl.dark()
    ? [[0, "#2b2350"], [0.35, "#31688e"], [0.7, "#35b779"], [1, "#fde725"]]
    : [[0, "#edf4fb"], [0.35, "#9fc9e8"], [0.7, "#2f7fbd"], [1, "#08306b"]]);

  function frame(spec, name, index) {
    const size = spec.rows * spec.columns;
    const cells = (key) => (spec.cache[key] ??= unrun(spec.maps[key])).subarray(index * size, (index + 1) * size);
    const value = (code) => (code < 0 ? null : spec.numeric ? Number(spec.actions[code]) : code);
    const apart = name === "the last policy minus the optimum";
    const [mine, best] = apart ? [cells("the last policy"), cells("the optimum")] : [null, null];
    const shown = apart ? null : cells(name);
    const grid = [], words = [];
    for (let y = 0; y < spec.rows; y += 1) {
      const line = [], text = [];
      for (let x = 0; x < spec.columns; x += 1) {
        const at = y * spec.columns + x;
        const here = apart ? (mine[at] < 0 ? null : value(mine[at]) - value(best[at])) : value(shown[at]);
        line.push(here);
        text.push(here === null ? "" : apart ? `${here}` : escaped(String(spec.actions[shown[at]])));
      }
      grid.push(line);
      words.push(text);
    }
    return { grid, words, apart };
  }

  drawers.heatmap = (id, spec, state) => {
    spec.cache ??= {};
    state.which ??= Object.keys(spec.maps)[0];
    state.frame ??= spec.start;
    const { grid, words, apart } = frame(spec, state.which, state.frame);
    const numbers = spec.actions.map(Number);
    const range = !spec.numeric ? [0, spec.actions.length - 1]
      : apart ? [-Math.max(...numbers) / 4, Math.max(...numbers) / 4] : bounds(spec, state.which);
    const diverging = [[0, colour("orange")], [0.5, colour("head")], [1, colour("blue")]];
    const trace = {
      type: "heatmap", z: grid, text: words, zmin: range[0], zmax: range[1], colorscale: apart ? diverging : scale(),
      hovertemplate: `${spec.y} %{y}, ${spec.x} %{x}: %{text}<extra></extra>`, hoverongaps: false, xgap: 1, ygap: 1,
      showscale: spec.numeric, colorbar: { thickness: 12, outlinewidth: 0, title: { text: apart ? "difference" : spec.unit ?? "action" } },
    };
    Plotly.react(id, [trace], layout(spec, { xaxis: axis(spec.x), yaxis: axis(spec.y), dragmode: false }), config);
    const element = document.getElementById(id);
    if (!state.listening) {
      state.listening = true;
      element.on("plotly_click", (event) => explore(id, spec, state, event.points[0]));
    }
  };

  // The colours of a map stay the same from step to step.
  function bounds(spec, name) {
    spec.range ??= {};
    if (!(name in spec.range)) {
      const used = new Set(unrun(spec.maps[name]));
      used.delete(-1);
      const values = [...used].map((code) => Number(spec.actions[code]));
      spec.range[name] = [Math.min(...values), Math.max(...values)];
    }
    return spec.range[name];
  }

  function explore(id, spec, state, point) {
    const target = explorers[id.replace(/-(map|safe)$/, "-explorer")];
    if (!target) return;
    const step = spec.frames > 1 ? state.frame : point.x;
    const label = spec.frames > 1 ? `(${point.y}, ${point.x})` : String(point.y);
    target.go(step, (text) => text === label || (spec.frames === 1 && text.startsWith(`(${point.y}, `)));
  }

  document.addEventListener("change", (event) => {
    const select = event.target.closest("[data-which]");
    if (!select) return;
    stateOf(select.dataset.which).which = select.value;
    draw(select.dataset.which);
  });
  document.addEventListener("input", (event) => {
    const slider = event.target.closest("[data-frame]");
    if (!slider) return;
    const id = slider.dataset.frame;
    stateOf(id).frame = Number(slider.value);
    document.querySelector(`[data-frame-shown="${id}"]`).textContent = slider.value;
    draw(id);
  });

  // --- Gantt charts ---
  drawers.gantt = (id, spec) => {
    const names = spec.bars.map((bar) => `job ${bar.job}`);
    const late = spec.bars.map((bar) => bar.end > bar.deadline);
    const marks = (name, key, paint, dash) => ({
      type: "scatter", mode: "markers", name, x: spec.bars.map((bar) => bar[key]), y: names,
      marker: { symbol: dash ? "diamond-open" : "line-ns-open", size: dash ? 9 : 18, color: paint, line: { color: paint, width: dash ? 2 : 3 } },
      hovertemplate: `%{y}: ${name} %{x}<extra></extra>`,
    });
    const bars = {
      type: "bar", orientation: "h", base: spec.bars.map((bar) => bar.start), x: spec.bars.map((bar) => bar.end - bar.start),
      y: names, marker: { color: late.map((is) => colour(is ? "orange" : "sky")) }, name: "processing",
      customdata: spec.bars.map((bar) => [bar.start, bar.end, bar.due ?? "never late", bar.deadline]),
      hovertemplate: "%{y}: %{customdata[0]} to %{customdata[1]}, due %{customdata[2]}, deadline %{customdata[3]}<extra></extra>",
    };
    document.getElementById(id).style.height = `${7 + 2 * names.length}rem`;
    Plotly.react(id, [bars, marks("due", "due", colour("purple"), true), marks("deadline", "deadline", colour("ink"), false)],
      layout(spec, {
        xaxis: { ...axis("time"), rangemode: "tozero" }, yaxis: { ...axis(""), autorange: "reversed" }, showlegend: true,
        legend: { orientation: "h", y: -0.28, font: { size: 12 } }, bargap: 0.35, dragmode: false,
      }), config);
  };

  // --- explorer ---
  const explorers = {};
  const MOST_OPTIONS = 500;

  class Explorer {
    constructor(element, spec) {
      this.element = element;
      this.pick = (name) => element.querySelector(`[data-pick="${name}"]`);
      this.body = element.querySelector("tbody");
      this.take(spec);
      this.pick("step").addEventListener("change", () => this.list());
      this.pick("find").addEventListener("input", () => this.list());
      this.pick("state").addEventListener("change", () => this.show());
      this.list();
    }

    take(spec) {
      this.spec = spec;
      for (const name of ["reward", "violation", "margin", "lawValue", "lawViolation", "q", "harm"]) {
        this[name] = spec[name] ? unpack(spec[name], Float32Array) : null;
      }
      for (const name of ["rowAction", "law"]) this[name] = unpack(spec[name], Int32Array);
      for (const name of ["policy", "optimum", "witness", "verdict", "reachable", "slotStep"]) this[name] = spec[name] ? unrun(spec[name]) : null;
      this.rows = spec.rowStart[spec.rowStart.length - 1];
    }

    // The policy has changed; what the reader picked stays. Of a large model only some states are here, maybe others now.
    renew(spec) {
      const before = this.spec.labels, picked = before[Number(this.pick("state").value)];
      this.take(spec);
      if (spec.labels.length === before.length && spec.labels.every((label, i) => label === before[i])) this.show();
      else this.list((slot) => spec.labels[slot] === picked);
    }

    get step() {
      const step = Math.round(Number(this.pick("step").value));
      return Math.min(Math.max(Number.isFinite(step) ? step : 0, 0), this.spec.horizon - 1);
    }

    // States that an episode can be in at this step.
    states(step) {
      const { labels, stationary } = this.spec, count = labels.length, found = [];
      for (let slot = 0; slot < count; slot += 1) {
        if (stationary ? this.reachable[step * count + slot] : this.slotStep[slot] === step && this.reachable[slot]) found.push(slot);
      }
      return found;
    }

    list(wanted = null) {
      const step = this.step, find = this.pick("find").value.trim().toLowerCase(), select = this.pick("state");
      this.pick("step").value = step;
      const before = wanted ?? (select.value === "" ? null : ((slot) => slot === Number(select.value)));
      const matching = this.states(step).filter((slot) => this.spec.labels[slot].toLowerCase().includes(find));
      const options = matching.slice(0, MOST_OPTIONS);
      const kept = before ? matching.find((slot) => before(slot)) : undefined;
      if (kept !== undefined && !options.includes(kept)) options.unshift(kept);
      select.replaceChildren(...options.map((slot) => new Option(this.spec.labels[slot], slot, false, slot === kept)));
      if (matching.length > MOST_OPTIONS) {
        const more = new Option(`… ${matching.length - MOST_OPTIONS} more: narrow the search`, "");
        more.disabled = true;
        select.append(more);
      }
      this.show();
    }

    go(step, matches) {
      this.pick("step").value = step;
      this.pick("find").value = "";
      this.list((slot) => matches(this.spec.labels[slot]));
      this.element.scrollIntoView({ behavior: "smooth", block: "nearest" });
    }

    reasons(step, row) {
      const { constraints, stationary, dead } = this.spec, why = [];
      const column = stationary ? step : 0, width = constraints.length;
      constraints.forEach((name, i) => {
        const margin = this.margin[row * width + i];
        if (margin < 0) why.push(`breaks ${name} by up to ${number(-margin)}`);
      });
      const verdict = this.verdict[column * this.rows + row];
      if (verdict === 1 && !why.length) why.push("violates"); // by less than a page's numbers can show
      if (verdict === 2) why.push("may lead where no policy is safe");
      const seen = this.witness ? this.witness[column * this.rows + row] : -2;
      if (seen === -1) why.push(`the learner saw it violate by ${number(this.harm[row])}`);
      if (seen >= 0) why.push(`the learner saw it lead to ${dead[seen]}, where everything fails`);
      return why;
    }

    action(step, row) {
      const { laws, stationary, actions } = this.spec, column = stationary ? step : 0;
      const after = column * laws + this.law[row];
      return {
        name: actions[this.rowAction[row]], value: this.reward[row] + this.lawValue[after],
        violation: this.violation[row] + this.lawViolation[after], q: this.q ? this.q[column * this.rows + row] : null,
        why: this.reasons(step, row),
      };
    }

    show() {
      const answer = this.element.querySelector("[data-answer]"), select = this.pick("state"), step = this.step;
      if (select.value === "") {
        answer.textContent = "No state of this step matches.";
        this.body.replaceChildren();
        return;
      }
      const slot = Number(select.value), { labels, rowStart, stationary } = this.spec;
      const node = (stationary ? step * labels.length : 0) + slot;
      const taken = this.policy[node], best = this.optimum ? this.optimum[node] : -1;
      const found = [];
      for (let row = rowStart[slot]; row < rowStart[slot + 1]; row += 1) found.push(this.action(step, row));
      this.body.replaceChildren(...found.map((one, i) => this.line(one, i === taken, i === best)));
      const unsafe = found.filter((one) => one.why.length).length, one = found[taken];
      const text = `Step ${step}, state ${labels[slot]}: the policy takes ${one.name}. Value from here on `
        + `${number(one.value)}, expected violation ${number(one.violation)}. ${unsafe} of ${found.length} actions are known to be unsafe`
        + `${this.optimum ? `; the optimum takes ${found[best].name}` : ""}.`;
      if (answer.textContent !== text) answer.textContent = text; // what is new is read out
    }

    line(one, taken, best) {
      const row = document.createElement("tr");
      row.className = taken ? "chosen" : "";
      const words = [taken ? "by the policy" : "", best ? "by the optimum" : ""].filter(Boolean).join(", ");
      const cells = [[one.name], [words], [number(one.value), one.value], [number(one.violation), one.violation],
        [one.q === null ? "" : number(one.q), one.q], [one.why.join("; ")]];
      for (const [text, value] of cells) {
        const cell = row.insertCell();
        cell.textContent = text;
        if (value !== undefined) {
          cell.className = "number";
          cell.dataset.value = value ?? "";
        }
      }
      if (one.why.length) row.cells[5].className = "bad";
      return row;
    }
  }

  document.addEventListener("DOMContentLoaded", () => {
    const ready = (element) => { explorers[element.id] ??= new Explorer(element, data[element.id]); };
    const watcher = new IntersectionObserver((entries) => entries.filter((one) => one.isIntersecting).forEach((one) => {
      watcher.unobserve(one.target);
      ready(one.target);
    }), { rootMargin: "600px" });
    const observe = () => all("[data-explorer]").forEach((element) => explorers[element.id] || watcher.observe(element));
    observe();
    document.addEventListener("focusin", (event) => {
      const element = event.target.closest("[data-explorer]");
      if (element) ready(element);
    });
    document.addEventListener("renewed", () => {
      for (const [id, one] of Object.entries(explorers)) {
        if (data[id] && one.element.isConnected) one.renew(data[id]);
        else delete explorers[id];
      }
      observe();
    });
    window.peakrl.explorers = explorers;
    window.peakrl.ready = ready;
  });
})();
