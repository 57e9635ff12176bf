// --- tables ------------------------------------------------------------------------------------------------------
const textOf = (cell) => cell?.dataset.value ?? cell?.textContent.trim() ?? "";
const numberOf = (cell) => parseFloat(textOf(cell).replace(/^(?:[[*~]|at most )+/, "").replaceAll(",", ""));
const firstRow = (unit) => unit.matches("tbody") ? unit.rows[0] : unit;
// A case is a body of its own, with its reasons in a second row; elsewhere a case is a row.
const unitsOf = (table) => table.matches(".cases") ? [...table.tBodies] : [...table.tBodies[0].rows];
const columnOf = (table, name) => all("thead th", table).findIndex((head) => head.dataset.name === name);

function sort(table, at, head) {
  const direction = head.getAttribute("aria-sort") === "ascending" ? "descending" : "ascending";
  all("th[aria-sort]", table).forEach((head) => head.removeAttribute("aria-sort"));
  head.setAttribute("aria-sort", direction);
  const sign = direction === "ascending" ? 1 : -1;
  const words = head.classList.contains("word");
  const keyed = unitsOf(table).map((unit) => {
    const cell = firstRow(unit).cells[at];
    return { unit, key: words ? textOf(cell) : numberOf(cell) };
  });
  const known = (key) => words ? key !== "" : !Number.isNaN(key);
  // A row without the figure is last in both directions.
  keyed.sort((a, b) => known(b.key) - known(a.key) || (known(a.key) ? sign * (a.key > b.key ? 1 : a.key < b.key ? -1 : 0) : 0));
  keyed[0]?.unit.parentNode.append(...keyed.map(({ unit }) => unit));
}

function sortable(table) {
  all("thead th", table).forEach((head, at) => {
    head.dataset.name = head.textContent.trim();
    const control = made("button", "", { type: "button" });
    control.append(...head.childNodes);
    control.addEventListener("click", () => sort(table, at, head));
    head.append(control);
  });
  const names = all("thead th", table).map((head) => head.dataset.name);
  // A table of words has no columns to compare: on a phone its rows are blocks.
  const words = all("thead th.word", table).length;
  if (table.closest("#summary") || 2 * words > names.length && all("td.long", table).length) {
    table.classList.add("stacked");
    all("td", table).forEach((cell) => { cell.dataset.label = names[cell.cellIndex]; });
  }
}

// What a row is stays in sight when its figures scroll: the leading columns among these.
const KEYS = new Set(["grade", "model", "case", "backend", "setting", "precision", "batch", "sequence", "seq"]);
const MAX_KEYS = 6;  // as many as the style sheet has places
const BELOW = new Map([["model", ""], ["precision", ""], ["setting", ""], ["batch", "batch "], ["seq", "sequence "], ["prompt", "prompt "], ["new", "new "],
                       ["boundary, mode", ""], ["device", "device "]]);  // below the backend, where keys find no room; column → before its text

function stick(table) {
  const heads = [...(table.tHead?.rows[0]?.cells ?? [])];
  const free = heads.findIndex((head) => !KEYS.has(head.dataset.name));
  const keys = heads.slice(0, Math.min(free < 0 ? 0 : free, MAX_KEYS));
  const places = keys.map((_, at) => at + 1).join(" ");
  table.dataset.keys = places;  // before widths are read: without it a backend's cell has more text
  delete table.dataset.below;
  all(".in-key, .below", table).forEach((cell) => cell.classList.remove("in-key", "below"));
  let left = 0;
  keys.forEach((head, at) => {
    table.style.setProperty(`--key-${at + 1}`, `${left}px`);
    left += head.getBoundingClientRect().width;
  });
  // Keys that leave no room for figures stay where they are.
  const room = table.parentNode.clientWidth;
  table.dataset.keys = left < .6 * room ? places : "";
  const named = columnOf(table, "backend");
  if (!table.dataset.keys && named >= 0 && !table.matches(".stacked")) below(table, heads, named);
}

// The first figures of a phone's row, instead of the rest of its key: that is below the backend.
function below(table, heads, named) {
  const key = heads.flatMap((head, at) => BELOW.has(head.dataset.name) ? [at] : []);
  table.dataset.below = "";
  for (const row of [table.tHead.rows[0], ...unitsOf(table).map(firstRow)]) {
    const cells = key.map((at) => row.cells[at]);
    cells.forEach((cell) => cell.classList.add("in-key"));
    row.cells[named].classList.add("below");
    if (row.parentNode === table.tHead) continue;
    const texts = key.map((at, place) => textOf(cells[place]) && BELOW.get(heads[at].dataset.name) + textOf(cells[place]));
    row.cells[named].dataset.shape = texts.filter((text) => text && !text.endsWith("–")).join(" · ");
  }
}
const inSight = new IntersectionObserver((seen) => {
  for (const { target, isIntersecting } of seen) if (isIntersecting) stick(target.querySelector("table"));
}, { rootMargin: "300px" });
addEventListener("resize", () => all("table[data-keys]").forEach(stick));

// A cell that a spreadsheet would run as a formula is text.
const csvCell = (text) => {
  const safe = /^[=+\-@\t\r]/.test(text) && Number.isNaN(Number(text.replaceAll(",", ""))) ? `'${text}` : text;
  return /[",\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
};
function csvOf(table) {
  const model = table.closest("section")?.dataset.model;
  const heads = all("thead th", table).map((head) => head.dataset.name);
  const rows = unitsOf(table).filter((unit) => !unit.hidden).map((unit) => [...firstRow(unit).cells].map(textOf));
  const add = (cells, first) => (model && !heads.includes("model") ? [first, ...cells] : cells).map(csvCell).join(",");
  return [add(heads, "model"), ...rows.map((cells) => add(cells, model))].join("\r\n") + "\r\n";
}
function downloadable(table) {
  const control = made("button", "CSV", { type: "button", class: "save", title: "Download the rows that are shown" });
  control.addEventListener("click", () => {
    const link = made("a", "", { href: URL.createObjectURL(new Blob([csvOf(table)], { type: "text/csv" })) });
    const title = table.closest("section")?.querySelector("h2")?.textContent.trim();
    const part = table.closest("details")?.querySelector("summary h3, summary h4")?.textContent.trim();
    link.download = `${fileName(title, part) || "table"}.csv`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  });
  const place = table.parentNode;
  place.before(control);
}

// Whatever the page shows from now on within an element: the whole page at the start, a model when it is opened.
function activate(within) {
  all("table.sortable", within).forEach(sortable);
  all(".scroll:has(> table.sortable)", within).forEach((place) => inSight.observe(place));
  all("section table.sortable", within).forEach(downloadable);
  all(".plot", within).forEach((place) => {
    const spec = JSON.parse(place.nextElementSibling.textContent);
    const rows = spec.layout.yaxis?.categoryarray?.length;
    specs.set(place, { ...spec, height: parseFloat(place.style.height), row: rows ? (parseFloat(place.style.height) - 64) / rows : Infinity });
  });
  all("button.svg", within).forEach((button) => button.addEventListener("click", () => saveChart(button)));
}
activate(document);

function unfold(control, open) {
  control.setAttribute("aria-expanded", String(open));
  document.getElementById(control.getAttribute("aria-controls")).hidden = !open;
}
addEventListener("click", ({ target }) => {
  const control = target.closest(".badge");
  if (control) unfold(control, control.getAttribute("aria-expanded") !== "true");
});

// A link to a case shows why it has its grade as well, one to a profile what is in it.
addEventListener("hashchange", () => {
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  const control = target?.querySelector(".badge");
  if (control) unfold(control, true);
  if (target?.matches("details")) target.open = true;
});

