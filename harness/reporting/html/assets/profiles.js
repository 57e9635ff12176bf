// --- profiles: made when they are opened -----------------------------------------------------------------------------
function operatorTable(place, { columns, lines }) {
  const table = made("table", "", { class: "sortable", "aria-label": place.dataset.label });
  table.createTHead().insertRow().append(...columns.map(([name, style]) => made("th", name, { scope: "col", class: style })));
  const body = table.createTBody();
  for (const cells of lines) body.insertRow().append(...cells.map((text, at) => made("td", text, { class: columns[at][1] })));
  place.append(table);
  sortable(table);
  return (text) => {
    const wanted = text.trim().toLowerCase();
    for (const row of body.rows) row.hidden = !row.textContent.toLowerCase().includes(wanted);
    const left = [...body.rows].filter((row) => !row.hidden).length;
    return wanted ? `${left} of ${lines.length} operators` : `${lines.length} operators`;
  };
}

function build(profile) {
  const { layers, operators } = JSON.parse(profile.querySelector("script").textContent);
  const part = (name) => profile.querySelector(`.${name}-part`);
  const wire = (within, match) => {
    const box = within.querySelector("[type=search]");
    const status = within.querySelector("[role=status]");
    const search = () => { status.textContent = match(box.value); };
    box.addEventListener("input", search);
    search();
    return box;
  };
  if (layers) {
    const within = part("layers");
    const tree = layerTree(within.querySelector(".scroll"), layers);
    const box = wire(within, tree.match);
    const depth = within.querySelector("[name=depth]");
    for (let level = 1; level <= tree.deepest; level += 1) {
      depth.append(made("option", level === tree.deepest ? "all" : String(level), { value: level }));
    }
    depth.value = String(tree.depth);
    tree.toDepth(tree.depth);
    depth.addEventListener("change", () => tree.toDepth(Number(depth.value)));
    const order = within.querySelector("[name=order]");
    order.addEventListener("change", () => tree.arrange(order.value === "longest"));
    // Without words the tree is open to the chosen depth.
    box.addEventListener("input", () => { if (!box.value.trim()) tree.toDepth(Number(depth.value)); });
    for (const item of all(".legend [data-group]", profile)) {
      const control = made("button", "", { type: "button", title: "Filter the layers by this group" });
      control.append(...item.childNodes);
      item.append(control);
      control.addEventListener("click", () => {
        box.value = box.value === item.dataset.group ? "" : item.dataset.group;
        box.dispatchEvent(new Event("input"));
      });
    }
  }
  if (operators) wire(part("operators"), operatorTable(part("operators").querySelector(".scroll"), operators));
}

function buildOnce(profile) {
  if (!profile.dataset.built) { profile.dataset.built = "yes"; build(profile); }
}
for (const profile of all("details.profile")) {
  profile.addEventListener("toggle", () => { if (profile.open) buildOnce(profile); });
}

