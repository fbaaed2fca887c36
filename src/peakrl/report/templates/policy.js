// Maps and the policy explorer.
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
  const KEYS = ["sky", "orange", "green", "purple", "yellow", "blue", "grey", "ink"];

  function opened(spec) {
    if (!spec.opened) {
      spec.opened = {
        at: spec.at.map((text) => unpack(text, Uint16Array)), state: unpack(spec.state, Int32Array),
        never: unrun(spec.never),
        layers: spec.layers.map((layer) => (layer.labels ? unrun(layer.runs) : unpack(layer.numbers, Float32Array))),
      };
    }
    return spec.opened;
  }

  // The fields that are not axes and in which two nodes of one cell differ: they are sliced.
  function sliced(spec, state) {
    const { at } = opened(spec), { x, y } = state;
    const key = `${x},${y}`;
    spec.sliced ??= {};
    if (!(key in spec.sliced)) {
      const cells = new Set();
      for (let i = 0; i < spec.nodes; i += 1) cells.add(at[y][i] * spec.fields[x].values.length + at[x][i]);
      const rest = spec.fields.map((_, f) => f).filter((f) => f !== x && f !== y && spec.fields[f].values.length > 1);
      spec.sliced[key] = cells.size === spec.nodes ? [] : rest;
    }
    return spec.sliced[key];
  }

  // [y][x]: the node of the cell, or -1.
  function cells(spec, state) {
    const { at } = opened(spec), { x, y } = state, others = sliced(spec, state);
    const grid = spec.fields[y].values.map(() => new Array(spec.fields[x].values.length).fill(-1));
    for (let i = 0; i < spec.nodes; i += 1) {
      if (others.every((f) => at[f][i] === state.slices[f])) grid[at[y][i]][at[x][i]] = i;
    }
    return grid;
  }

  function sliders(id, spec, state) {
    const box = document.querySelector(`[data-slices="${id}"]`), wanted = sliced(spec, state);
    const shown = wanted.join();
    if (box.dataset.shown === shown && box.childElementCount === wanted.length) return;
    box.dataset.shown = shown;
    box.replaceChildren(...wanted.map((f) => {
      const label = document.createElement("label"), input = document.createElement("input"), output = document.createElement("output");
      Object.assign(input, { type: "range", min: 0, max: spec.fields[f].values.length - 1, value: state.slices[f] });
      input.dataset.slice = id;
      input.dataset.field = f;
      output.textContent = spec.fields[f].values[state.slices[f]];
      label.append(`${spec.fields[f].name}:`, input, output);
      return label;
    }));
  }

  // The colours of a layer stay the same from slice to slice.
  function range(spec, layer) {
    spec.ranges ??= {};
    if (!(layer in spec.ranges)) {
      let low = Infinity, high = -Infinity;
      for (const value of opened(spec).layers[layer]) {
        if (value < low) low = value;
        if (value > high) high = value;
      }
      spec.ranges[layer] = low < high ? [low, high] : [Math.min(low, 0), Math.max(high, low + 1)];
    }
    return spec.ranges[layer];
  }

  // A few labels get a colour each, and a key below the map.
  function labelled(id, layer) {
    const few = layer.labels.length <= KEYS.length, last = Math.max(layer.labels.length - 1, 1);
    const hue = (i) => `hsl(${Math.round((360 * i) / layer.labels.length)}, 55%, ${[42, 58, 72][i % 3]}%)`; // no two alike
    const none = (text) => text.startsWith("none: ");
    const paints = layer.labels.map((text, i) => (none(text) ? colour("line") : few ? colour(KEYS[i]) : hue(i)));
    const steps = paints.flatMap((paint, i) => [[i / (last + 1), paint], [(i + 1) / (last + 1), paint]]);
    document.querySelector(`[data-key="${id}"]`).replaceChildren(...layer.labels.slice(0, 40).map((text, i) => {
      const item = document.createElement("span"), box = document.createElement("i");
      item.className = "key";
      box.style.background = paints[i];
      item.append(box, text);
      return item;
    }));
    // The page has the key above; a downloaded picture has this one.
    const colorbar = { tickvals: layer.labels.map((_, i) => i), ticktext: layer.labels.map(escaped) };
    return { zmin: -0.5, zmax: last + 0.5, colorscale: steps, showscale: false, colorbar };
  }

  function mapState(spec, state) {
    state.layer ??= 0;
    state.x ??= spec.x;
    state.y ??= spec.y;
    state.slices ??= spec.slices.slice();
    if (state.layer >= spec.layers.length) state.layer = 0;
    return state;
  }

  drawers.map = (id, spec, given) => {
    const state = mapState(spec, given), layer = spec.layers[state.layer], values = opened(spec).layers[state.layer];
    sliders(id, spec, state);
    const across = spec.fields[state.x], upwards = spec.fields[state.y], nodes = cells(spec, state);
    const tell = (i) => (i < 0 ? null : layer.labels ? layer.labels[values[i]] : number(values[i]));
    const axes = [state.x, state.y, ...sliced(spec, state)];
    const where = (i) => axes.map((f) => `${spec.fields[f].name} ${spec.fields[f].values[opened(spec).at[f][i]]}`).join(", ");
    const words = nodes.map((line) => line.map((i) => (i < 0 ? "" : escaped(String(tell(i))))));
    const hover = nodes.map((line) => line.map((i) => (i < 0 ? "" : escaped(`${where(i)}: ${tell(i)}`))));
    const element = document.getElementById(id), longest = Math.max(...words.flat().map((text) => text.length), 1);
    const roomy = element.clientWidth / across.values.length > 8 * longest + 12 && upwards.values.length <= 22;
    const narrow = element.clientWidth < 600, gap = across.values.length > 60 || upwards.values.length > 60 ? 0 : 1;
    let look;
    if (layer.labels) {
      look = labelled(id, layer);
    } else {
      document.querySelector(`[data-key="${id}"]`).replaceChildren();
      const [zmin, zmax] = range(spec, state.layer);
      look = {
        zmin, zmax, colorscale: scale(), showscale: true,
        colorbar: {
          thickness: 12, outlinewidth: 0, title: { text: layer.unit, side: narrow ? "bottom" : "right" },
          orientation: narrow ? "h" : "v", ...(narrow ? { y: -0.22, yanchor: "top", len: 1 } : {}),
        },
      };
    }
    const trace = {
      type: "heatmap", x: across.values.map(String), y: upwards.values.map(String), text: words, customdata: hover,
      z: nodes.map((line) => line.map((i) => (i < 0 ? null : values[i]))), hovertemplate: "%{customdata}<extra></extra>",
      hoverongaps: false, xgap: gap, ygap: gap, ...(roomy ? { texttemplate: "%{text}" } : {}), ...look,
    };
    const veil = window.peakrl.dark() ? "rgba(20,22,26,.7)" : "rgba(255,255,255,.7)"; // over what the policy never reaches
    const faded = {
      type: "heatmap", x: trace.x, y: trace.y, z: nodes.map((line) => line.map((i) => (i >= 0 && opened(spec).never[i] ? 1 : null))),
      zmin: 0, zmax: 1, colorscale: [[0, veil], [1, veil]], showscale: false, hoverinfo: "skip", xgap: gap, ygap: gap,
    };
    const labelled_axis = (field, most) => ({ ...axis(field.name), type: "category", showgrid: false, nticks: Math.min(field.values.length, narrow ? 8 : 16, most) });
    // Long numbers side by side: fewer of them, or plotly would turn them into the title.
    const widest = across.values.every((value) => isFinite(value)) ? 9 * Math.max(...trace.x.map((text) => text.length)) + 12 : 1;
    Plotly.react(id, [trace, faded], layout(spec, { xaxis: { ...labelled_axis(across, Math.max(2, Math.floor(0.75 * element.clientWidth / widest))), automargin: false }, yaxis: { ...labelled_axis(upwards, 16), autorange: upwards.down ? "reversed" : true }, dragmode: false }), config);
    if (!element.listening) {
      element.listening = true;
      element.on("plotly_click", (event) => {
        const [line, column] = event.points[0].pointIndex, spec_now = data[id], now = stateOf(id);
        const node = cells(spec_now, now)[line][column];
        if (node >= 0) explore(id, spec_now, node);
      });
    }
  };

  function explore(id, spec, node) {
    const box = document.getElementById(id.replace(/-map$/, "-explorer"));
    if (!box) return;
    window.peakrl.ready(box);
    const { at, state } = opened(spec);
    explorers[box.id].go(at[0][node], (text) => text === spec.labels[state[node]]);
  }

  document.addEventListener("change", (event) => {
    const select = event.target.closest("[data-map]");
    if (!select) return;
    const id = select.dataset.map, spec = data[id], state = mapState(spec, stateOf(id)), choice = select.dataset.choice;
    const other = { x: "y", y: "x" }[choice], before = state[choice];
    state[choice] = Number(select.value);
    if (other && state[other] === state[choice]) { // the axes must differ: swap them
      state[other] = before;
      document.querySelector(`[data-map="${id}"][data-choice="${other}"]`).value = String(before);
    }
    draw(id);
  });
  document.addEventListener("input", (event) => {
    const slider = event.target.closest("[data-slice]");
    if (!slider) return;
    const id = slider.dataset.slice, spec = data[id], field = Number(slider.dataset.field);
    mapState(spec, stateOf(id)).slices[field] = Number(slider.value);
    slider.nextElementSibling.textContent = spec.fields[field].values[Number(slider.value)];
    draw(id);
  });

  // --- explorer ---
  const explorers = {};
  const MOST_OPTIONS = 500;

  class Explorer {
    constructor(element, spec) {
      this.element = element;
      this.pick = (name) => element.querySelector(`[data-pick="${name}"]`);
      this.body = element.querySelector("tbody");
      this.heads = [...element.querySelectorAll("thead th")].map((head) => head.textContent);
      this.take(spec);
      this.pick("step").addEventListener("change", () => this.list());
      this.pick("find").addEventListener("input", () => this.list());
      this.pick("state").addEventListener("change", () => this.show());
      this.list();
    }

    take(spec) {
      this.spec = spec;
      for (const name of ["reward", "violation", "margin", "valueAfter", "violationAfter", "q", "worst"]) {
        this[name] = spec[name] ? unpack(spec[name], Float32Array) : null;
      }
      for (const name of ["rowAction", "distribution"]) this[name] = unpack(spec[name], Int32Array);
      for (const name of ["policy", "optimum", "witness", "verdict", "reachable", "slotStep"]) this[name] = spec[name] ? unrun(spec[name]) : null;
      this.rows = spec.rowStart[spec.rowStart.length - 1];
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
        if (margin < 0) why.push(`violates ${name} by up to ${number(-margin)}`);
      });
      const verdict = this.verdict[column * this.rows + row];
      if (verdict === 1 && !why.length) why.push("violates"); // by less than single precision shows
      if (verdict === 2) why.push("may lead to a state from which no policy is safe");
      const seen = this.witness ? this.witness[column * this.rows + row] : -2;
      if (seen === -1) why.push(`observed violation:  ${number(this.worst[row])}`);
      if (seen >= 0) why.push(`observed to lead to the dead end ${dead[seen]}`);
      return why;
    }

    action(step, row) {
      const { distributions, stationary, actions } = this.spec, column = stationary ? step : 0;
      const after = column * distributions + this.distribution[row];
      return {
        name: actions[this.rowAction[row]], value: this.reward[row] + this.valueAfter[after],
        violation: this.violation[row] + this.violationAfter[after], q: this.q ? this.q[column * this.rows + row] : null,
        why: this.reasons(step, row),
      };
    }

    show() {
      const answer = this.element.querySelector("[data-answer]"), select = this.pick("state"), step = this.step;
      if (select.value === "") {
        answer.textContent = "No matching state at this step.";
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
        + `${number(one.value)}, expected violation ${number(one.violation)}. ${unsafe} of ${found.length} actions are unsafe`
        + `${this.optimum ? `; the optimum takes ${found[best].name}` : ""}.`;
      if (answer.textContent !== text) answer.textContent = text; // screen readers announce changes
    }

    line(one, taken, best) {
      const row = document.createElement("tr");
      row.className = taken ? "chosen" : "";
      const words = [taken ? "policy" : "", best ? "optimum" : ""].filter(Boolean).join(", ");
      const cells = [[one.name], [words], [number(one.value), one.value], [number(one.violation), one.violation],
        [one.q === null ? "" : number(one.q), one.q], [one.why.join("; ")]];
      for (const [text, value] of cells) {
        const cell = row.insertCell();
        cell.textContent = text;
        cell.dataset.label = this.heads[row.cells.length - 1];
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
    window.peakrl.explorers = explorers;
    window.peakrl.ready = ready;
  });
})();
