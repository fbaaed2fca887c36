// Keeps the page up to date while a run goes on, and the reader where they are.
(() => {
  "use strict";
  const { data } = window.peakrl;
  const box = document.getElementById("live");
  const part = (name) => document.getElementById(`live-${name}`);
  const me = Math.random().toString(36).slice(2, 12);
  const title = document.title;
  const WORDS = {
    starting: "starting", running: "running", finished: "run finished", interrupted: "run interrupted", failed: "run failed",
  };
  const OVER = new Set(["finished", "interrupted", "failed"]);
  const TRIES = 3;
  let version = Number(box.dataset.version);

  const pause = (milliseconds) => new Promise((resolve) => { setTimeout(resolve, milliseconds); });
  const number = (value, digits = 0) => value.toLocaleString("en", { maximumFractionDigits: digits });
  const set = (element, text) => { if (element.textContent !== text) element.textContent = text; };

  // --- merging new content into the page ---
  // Filled by a script or by the reader: charts, pickers, switches.
  const OWN = ".plot, input, select, output, [data-answer], [data-slices], [data-key], .explorer tbody, noscript";
  const OWN_ATTRIBUTES = new Set(["aria-pressed", "hidden", "open", "style"]);
  const key = (node) => (node.nodeType === Node.ELEMENT_NODE
    ? `${node.nodeName}#${node.id || node.querySelector("[id]")?.id || ""}` : node.nodeName);

  function merge(old, fresh) {
    if (old.nodeType !== Node.ELEMENT_NODE) {
      if (old.data !== fresh.data) old.data = fresh.data;
      return;
    }
    if (old.matches(OWN)) return;
    for (const name of new Set([...old.getAttributeNames(), ...fresh.getAttributeNames()])) {
      const value = fresh.getAttribute(name);
      if (OWN_ATTRIBUTES.has(name) || value === old.getAttribute(name)) continue;
      if (value === null) old.removeAttribute(name);
      else old.setAttribute(name, value);
    }
    mergeChildren(old, fresh);
  }

  function mergeChildren(old, fresh) {
    const left = [...old.childNodes];
    const pairs = [...fresh.childNodes].map((child) => {
      const wanted = key(child), at = left.findIndex((one) => key(one) === wanted);
      return [at < 0 ? null : left.splice(at, 1)[0], child];
    });
    left.forEach((one) => one.remove());
    let place = old.firstChild;
    for (const [found, child] of pairs) {
      if (found === null) {
        old.insertBefore(document.importNode(child, true), place);
      } else {
        if (found === place) place = place.nextSibling;
        else old.insertBefore(found, place);
        merge(found, child);
      }
    }
  }

  function renew(content) {
    const fresh = new DOMParser().parseFromString(content.html, "text/html");
    for (const id of ["contents", "content"]) merge(document.getElementById(id), fresh.getElementById(id));
    for (const id of Object.keys(data)) if (!(id in content.data)) delete data[id];
    Object.assign(data, content.data);
    version = content.version;
    box.dataset.version = String(version);
    document.dispatchEvent(new Event("renewed"));
  }

  // A chart that is being dragged is not touched.
  let held = false;
  addEventListener("pointerdown", () => { held = true; });
  for (const name of ["pointerup", "pointercancel", "blur"]) addEventListener(name, () => { held = false; });

  // --- news ---
  function tell(news) {
    set(part("state"), WORDS[news.state]);
    box.dataset.state = news.state;
    const words = [];
    if (news.total) {
      part("bar").max = news.total;
      part("bar").value = news.done;
      words.push(`${number(news.done)} of ${number(news.total)} episodes`);
    }
    if (news.rate) words.push(`${number(news.rate)} a second`);
    if (news.state === "running" && news.rate) words.push(`${duration((news.total - news.done) / news.rate)} left`);
    if (news.total) words.push(`${number(news.violations)} violating`);
    if (news.trouble) words.push(`this page could not be renewed: ${news.trouble}`);
    set(part("numbers"), words.join(" · "));
    const share = news.total ? Math.floor((100 * news.done) / news.total) : 0;
    document.title = OVER.has(news.state) ? `${WORDS[news.state]} · ${title}` : `${share} % · ${title}`;
  }

  function duration(seconds) {
    if (seconds < 60) return `${number(Math.ceil(seconds))} s`;
    return seconds < 3600 ? `${number(seconds / 60)} min` : `${number(seconds / 3600, 1)} h`;
  }

  async function ask(path) {
    const answer = await fetch(path, { cache: "no-store" });
    if (!answer.ok) throw new Error(String(answer.status));
    return answer.json();
  }

  // The server answers at once where there is news, and otherwise after a second.
  async function follow() {
    part("again").hidden = true;
    for (let failures = 0; failures < TRIES;) {
      try {
        const news = await ask(`/news?page=${me}&seen=${version}`);
        if (news.run !== box.dataset.run) return location.reload(); // another run has taken its place
        failures = 0;
        tell(news);
        if (news.version !== version) {
          const content = await ask("/content");
          while (held) await pause(100);
          renew(content);
        } else if (OVER.has(news.state)) {
          return undefined;
        }
      } catch {
        failures += 1;
        if (failures < TRIES) await pause(500 * failures);
      }
    }
    set(part("state"), "the server is gone");
    box.dataset.state = "gone";
    set(part("numbers"), `${part("numbers").textContent} (as it stood then)`);
    document.title = `the server is gone · ${title}`;
    part("again").hidden = false;
    return undefined;
  }

  part("again").addEventListener("click", follow);
  document.addEventListener("DOMContentLoaded", follow);
})();
