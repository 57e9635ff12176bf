// --- filters -----------------------------------------------------------------------------------------------------
let filtering = false;

function filter() {
  const before = filtering;
  for (const set of all("[data-filter]")) {
    hidden[set.dataset.filter] = new Set(all("input:not(:checked)", set).map((box) => box.value));
  }
  filtering = Object.values(hidden).some((values) => values.size);
  if (filtering || before) hideRows();
  const cases = document.querySelectorAll(".cases tbody").length;
  const left = document.querySelectorAll("section:not([hidden]) .cases tbody:not([hidden])").length;
  const status = document.getElementById("shown");
  if (status) status.textContent = left === cases ? `${left} cases` : `${left} of ${cases} cases`;
  redraw();
}

function hideRows() {
  for (const table of all("table.sortable")) {
    const columns = FILTERS.map((name) => [name, columnOf(table, name)]).filter(([, at]) => at >= 0);
    if (!columns.some(([name]) => name === "backend")) continue;
    for (const unit of unitsOf(table)) {
      unit.hidden = columns.some(([name, at]) => hidden[name]?.has(textOf(firstRow(unit).cells[at])));
    }
  }
  for (const section of all("section[data-model]")) {
    section.hidden = Boolean(hidden.model?.has(section.dataset.model));
    const link = document.querySelector(`nav a[href="#${section.id}"]`);
    if (link) link.hidden = section.hidden;
  }
  for (const unit of all("[data-tags]")) unit.hidden = !shows(JSON.parse(unit.dataset.tags));
}

all("[data-filter] input").forEach((box) => box.addEventListener("change", filter));
document.getElementById("reset")?.addEventListener("click", () => {
  all("[data-filter] input").forEach((box) => { box.checked = true; });
  filter();
});
