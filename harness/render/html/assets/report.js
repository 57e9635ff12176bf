"use strict";
(() => {
  const root = document.documentElement;
  root.classList.add("js");
  const all = (selector, within = document) => [...within.querySelectorAll(selector)];

  // --- theme -------------------------------------------------------------------------------------------------------
  const THEMES = { auto: "as the system has it", light: "light", dark: "dark" };
  const button = document.getElementById("theme");
  const stored = () => { try { return localStorage.getItem("theme"); } catch { return null; } };
  const keep = (name) => { try { localStorage.setItem("theme", name); } catch { /* a local file may have no storage */ } };

  function setTheme(name) {
    if (name === "auto") delete root.dataset.theme;
    else root.dataset.theme = name;
    button.textContent = `Theme: ${name}`;
    button.setAttribute("aria-label", `Theme: ${name} (${THEMES[name]})`);
  }

  // --- charts ------------------------------------------------------------------------------------------------------
  const specs = new Map(all(".plot").map((place) => [place, JSON.parse(place.nextElementSibling.textContent)]));
  const hidden = {};  // filter → values that are switched off
  const FILTERS = ["backend", "precision", "batch", "grade"];  // the order of a point's customdata

  function palette() {
    const of = (selector, name) => getComputedStyle(document.querySelector(selector))[name];
    return { ink: of("body", "color"), muted: of("figcaption", "color"), page: of(".panel", "backgroundColor"),
             line: of(".panel", "borderTopColor"), font: of("body", "fontFamily") };
  }

  const channels = (text) => text.startsWith("#")
    ? [1, 3, 5].map((at) => parseInt(text.slice(at, at + 2), 16)) : text.match(/\d+/g).slice(0, 3).map(Number);
  const luminance = (text) => channels(text).reduce((sum, value, at) => sum + value * [.2126, .7152, .0722][at], 0);

  // Colours as the report writes them → those of this theme: `page`, `<colour> tint`, and black that would vanish.
  function paint(value, look) {
    if (Array.isArray(value)) return value.map((one) => paint(one, look));
    if (value && typeof value === "object") {
      return Object.fromEntries(Object.entries(value).map(([name, one]) => [name, paint(one, look)]));
    }
    if (value === "page") return look.page;
    if (typeof value !== "string" || !/^#[0-9a-f]{6}( tint)?$/i.test(value)) return value;
    const own = luminance(value) < 40 && luminance(look.page) < 128 ? look.ink : value.slice(0, 7);
    if (!value.endsWith(" tint")) return own;
    const page = channels(look.page);
    const share = luminance(look.page) < 128 ? .55 : .4;
    return `rgb(${channels(own).map((one, at) => Math.round(share * one + (1 - share) * page[at]))})`;
  }

  const shows = (tags) => tags.every((tag, at) => !hidden[FILTERS[at]]?.has(tag));

  // The points of a trace that the filters leave: every list in it that is as long as its list of points.
  function filtered(value, kept, length) {
    if (Array.isArray(value)) return value.length === length ? value.filter((_, at) => kept[at]) : value;
    if (value && typeof value === "object") {
      return Object.fromEntries(Object.entries(value).map(([name, one]) => [name, filtered(one, kept, length)]));
    }
    return value;
  }

  function draw(place) {
    const spec = specs.get(place);
    const look = palette();
    const data = [];
    for (const trace of spec.data) {
      const kept = trace.customdata.map(shows);
      if (!kept.some(Boolean)) continue;
      const one = { hovertemplate: "%{hovertext}<extra></extra>", ...filtered(trace, kept, kept.length) };
      for (const part of ["marker", "line", "error_x", "error_y"]) if (one[part]) one[part] = paint(one[part], look);
      data.push(one);
    }
    const narrow = place.clientWidth < 420;
    const axis = (given = {}) => {
      const labels = new Set(data.flatMap((trace) => trace.y));
      const order = given.categoryarray && { categoryarray: given.categoryarray.filter((name) => labels.has(name)) };
      return { gridcolor: look.line, zerolinecolor: look.line, linecolor: look.line, automargin: true,
               ...given, ...order, title: { ...given.title, standoff: 8, font: { size: 12, color: look.muted } } };
    };
    const layout = {
      ...spec.layout,
      xaxis: axis(spec.layout.xaxis), yaxis: axis(spec.layout.yaxis),
      shapes: (spec.layout.shapes ?? []).map((shape) => ({ ...shape, layer: "below", line: { ...shape.line, color: look.ink } })),
      font: { family: look.font, size: narrow ? 11 : 12, color: look.ink },
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      margin: { l: 8, r: 26, t: 18, b: 36 }, hovermode: "closest", dragmode: "zoom",
      hoverlabel: { bgcolor: look.page, bordercolor: look.line, align: "left", font: { color: look.ink, size: 12 } },
      legend: { orientation: "h", x: 0, y: -.2, yanchor: "top", tracegroupgap: 0, font: { size: 11 } },
    };
    Plotly.react(place, data, layout, {
      responsive: true, displaylogo: false, displayModeBar: "hover",
      modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d"], showEditInChartStudio: false,
    });
  }

  const drawn = new Set();
  const watcher = new IntersectionObserver((seen) => {
    for (const { target, isIntersecting } of seen) {
      if (!isIntersecting) continue;
      watcher.unobserve(target);
      drawn.add(target);
      draw(target);
    }
  }, { rootMargin: "400px" });
  const redraw = () => drawn.forEach(draw);

  // --- tables ------------------------------------------------------------------------------------------------------
  const textOf = (cell) => cell?.dataset.value ?? cell?.textContent.trim() ?? "";
  const numberOf = (cell) => parseFloat(textOf(cell).replace(/^[[*]/, "").replaceAll(",", ""));
  const firstRow = (unit) => unit.matches("tbody") ? unit.rows[0] : unit;
  // A case is a body of its own, with its reasons in a second row; elsewhere a case is a row.
  const unitsOf = (table) => table.matches(".cases") ? [...table.tBodies] : [...table.tBodies[0].rows];
  const columnOf = (table, name) => all("thead th", table).findIndex((head) => head.dataset.name === name);

  function sort(table, at, head) {
    const direction = head.getAttribute("aria-sort") === "ascending" ? "descending" : "ascending";
    all("th[aria-sort]", table).forEach((one) => one.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", direction);
    const sign = direction === "ascending" ? 1 : -1;
    const words = head.classList.contains("word");
    const keyed = unitsOf(table).map((unit) => {
      const cell = firstRow(unit).cells[at];
      return { unit, key: words ? textOf(cell) : numberOf(cell) };
    });
    const known = (key) => words ? key !== "" : !Number.isNaN(key);
    // What has no figure stands last in both directions.
    keyed.sort((a, b) => known(b.key) - known(a.key) || (known(a.key) ? sign * (a.key > b.key ? 1 : a.key < b.key ? -1 : 0) : 0));
    keyed.forEach(({ unit }) => unit.parentNode.append(unit));
  }

  for (const table of all("table.sortable")) {
    all("thead th", table).forEach((head, at) => {
      head.dataset.name = head.textContent.trim();
      const control = document.createElement("button");
      control.type = "button";
      control.append(...head.childNodes);
      control.addEventListener("click", () => sort(table, at, head));
      head.append(control);
    });
  }

  function unfold(control, open) {
    control.setAttribute("aria-expanded", String(open));
    document.getElementById(control.getAttribute("aria-controls")).hidden = !open;
  }
  for (const control of all(".badge")) {
    unfold(control, false);
    control.addEventListener("click", () => unfold(control, control.getAttribute("aria-expanded") !== "true"));
  }

  // A link to a case shows why it has its grade as well.
  addEventListener("hashchange", () => {
    const control = document.getElementById(decodeURIComponent(location.hash.slice(1)))?.querySelector(".badge");
    if (control) unfold(control, true);
  });

  // --- filters -----------------------------------------------------------------------------------------------------
  function filter() {
    for (const set of all("[data-filter]")) {
      hidden[set.dataset.filter] = new Set(all("input:not(:checked)", set).map((box) => box.value));
    }
    for (const table of all("table.sortable")) {
      const columns = FILTERS.map((name) => [name, columnOf(table, name)]).filter(([, at]) => at >= 0);
      if (!columns.some(([name]) => name === "backend")) continue;
      for (const unit of unitsOf(table)) {
        unit.hidden = columns.some(([name, at]) => hidden[name]?.has(textOf(firstRow(unit).cells[at])));
      }
    }
    const cases = all(".cases tbody");
    const left = cases.filter((unit) => !unit.hidden).length;
    const status = document.getElementById("shown");
    if (status) status.textContent = left === cases.length ? `${left} cases` : `${left} of ${cases.length} cases`;
    redraw();
  }
  all("[data-filter] input").forEach((box) => box.addEventListener("change", filter));
  document.getElementById("reset")?.addEventListener("click", () => {
    all("[data-filter] input").forEach((box) => { box.checked = true; });
    filter();
  });

  // --- start -------------------------------------------------------------------------------------------------------
  button.addEventListener("click", () => {
    const names = Object.keys(THEMES);
    const next = names[(names.indexOf(root.dataset.theme ?? "auto") + 1) % names.length];
    setTheme(next);
    keep(next);
    redraw();
  });
  setTheme(stored() in THEMES ? stored() : "auto");
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  filter();
  specs.forEach((_, place) => watcher.observe(place));

  const links = new Map(all("nav a").map((link) => [link.hash.slice(1), link]));
  const visible = new Set();
  const current = new IntersectionObserver((seen) => {
    for (const one of seen) visible[one.isIntersecting ? "add" : "delete"](one.target.id);
    const first = [...links.keys()].find((anchor) => visible.has(anchor));
    links.forEach((link, anchor) => {
      if (anchor === first) link.setAttribute("aria-current", "true");
      else link.removeAttribute("aria-current");
    });
  }, { rootMargin: "-10% 0px -60%" });
  all("main > section").forEach((section) => current.observe(section));
})();
