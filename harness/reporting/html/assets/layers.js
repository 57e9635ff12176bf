// --- layers of a profile -------------------------------------------------------------------------------------------
// A tree as a table (w3.org/WAI/ARIA/apg/patterns/treegrid): rows take the focus, arrows move and fold.
const FOLDED_LINES = 40;  // a tree opens as deep as this many lines allow

function layerRow([depth, group, total, self, path, members, label, ...cells], columns) {
  const row = made("tr", "", { "aria-level": depth + 1, tabindex: -1 });
  const name = made("td", "", { class: "word name", title: path });
  name.style.setProperty("--depth", depth);
  name.append(made("span", "", { class: "twisty", "aria-hidden": "true" }),
              made("span", "", { class: `dot g-${group}`, "aria-hidden": "true" }), label);
  const time = made("td", "", { class: "share" });
  time.style.setProperty("--total", total);
  time.style.setProperty("--self", self);
  time.append(made("span", `${(100 * total).toFixed(1)}%`));
  row.append(name, time, ...cells.map((text, at) => made("td", text, { class: columns[at + 1][1] })));
  return { row, depth, total, words: `${path} ${group} ${cells[0]} ${members}`.toLowerCase(), below: [], open: false, kept: true };
}

function layerTree(place, { columns, lines }) {
  const table = made("table", "", { role: "treegrid", class: "layers", "aria-label": place.dataset.label });
  const heads = columns.map(([name, style]) => made("th", name, { scope: "col", class: style }));
  heads.splice(1, 0, made("th", "share of time", { scope: "col", class: "word" }));
  table.createTHead().insertRow().append(...heads);
  const body = table.createTBody();
  const nodes = lines.map((line) => layerRow(line, columns));
  const top = [];
  const above = [];
  for (const node of nodes) {
    node.above = above[node.depth - 1];
    above[node.depth] = node;
    (node.above?.below ?? top).push(node);
  }
  const byRow = new Map(nodes.map((node) => [node.row, node]));

  function show() {
    for (const node of nodes) {  // what holds a line comes before it
      node.seen = node.kept && (!node.above || (node.above.seen && node.above.open));
      node.row.hidden = !node.seen;
      if (node.below.length) node.row.setAttribute("aria-expanded", String(node.open));
    }
  }
  function toDepth(depth) {
    for (const node of nodes) node.open = node.depth + 1 < depth;
    show();
  }
  function arrange(longestFirst) {
    const walk = (nodes) => nodes.flatMap((node) => [node.row, ...walk(node.below)]);
    const ordered = (nodes) => (longestFirst ? [...nodes].sort((a, b) => b.total - a.total) : nodes)
      .flatMap((node) => [node.row, ...ordered(node.below)]);
    body.append(...(longestFirst ? ordered(top) : walk(top)));
  }
  function match(text) {
    const wanted = text.trim().toLowerCase();
    let matches = 0;
    for (const node of nodes) { node.matches = node.words.includes(wanted); node.kept = node.matches; matches += node.matches; }
    for (const node of [...nodes].reverse()) if (node.kept && node.above) node.above.kept = true;
    if (wanted) for (const node of nodes) node.open = node.below.some((child) => child.kept);
    show();
    return wanted ? `${matches} of ${nodes.length} layers` : `${nodes.length} layers`;
  }

  function focus(row) {
    if (!row) return;
    body.querySelector("[tabindex='0']")?.setAttribute("tabindex", -1);
    row.tabIndex = 0;
    row.focus();
  }
  function fold(node, open) {
    if (node.below.length) { node.open = open; show(); }
  }
  body.addEventListener("click", (event) => {
    const node = byRow.get(event.target.closest("tr"));
    focus(node.row);
    if (event.target.closest(".name")) fold(node, !node.open);
  });
  body.addEventListener("keydown", (event) => {
    const node = byRow.get(event.target.closest("tr"));
    const rows = [...body.rows].filter((row) => !row.hidden);
    const at = rows.indexOf(node.row);
    const keys = {
      ArrowDown: () => focus(rows[at + 1]), ArrowUp: () => focus(rows[at - 1]),
      Home: () => focus(rows[0]), End: () => focus(rows.at(-1)),
      Enter: () => fold(node, !node.open), " ": () => fold(node, !node.open),
      ArrowRight: () => node.below.length && !node.open ? fold(node, true) : node.below.length && focus(rows[at + 1]),
      ArrowLeft: () => node.below.length && node.open ? fold(node, false) : focus(node.above?.row),
    };
    if (!keys[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    keys[event.key]();
  });

  arrange(true);
  nodes[0].row.tabIndex = 0;
  place.append(table);
  const deepest = Math.max(...nodes.map((node) => node.depth)) + 1;
  const upTo = (depth) => nodes.filter((node) => node.depth < depth).length;
  let depth = 1;
  while (depth < deepest && upTo(depth + 1) <= FOLDED_LINES) depth += 1;
  toDepth(depth);
  return { toDepth, arrange, match, depth, deepest };
}

