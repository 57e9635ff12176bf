// --- tables ------------------------------------------------------------------------------------------------------
const textOf = (cell) => cell?.dataset.value ?? cell?.textContent.trim() ?? "";
const numberOf = (cell) => parseFloat(textOf(cell).replace(/^(?:[[*~]|at most )+/, "").replaceAll(",", ""));
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
}
all("table.sortable").forEach(sortable);

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

