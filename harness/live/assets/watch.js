"use strict";
// Asks for /state.json once a second and shows it. Every text of it enters the page as text, never as markup.

const STATES = {
  waiting: "Waiting for a run to begin: {command}",
  exporting: "Exporting models",
  running: "Running",
  stopped: "Stopped, and some turns have no result: {command} continues",
  complete: "Complete",
};
const ABSENT = "–";
const EVERY_MS = 1000;
const PATIENCE_MS = 10000;
const at = (id) => document.getElementById(id);
let rows = new Map();
let plan = null;

const three = new Intl.NumberFormat("en", { minimumSignificantDigits: 3, maximumSignificantDigits: 3 });
const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const ms = (ns) => (ns === null ? ABSENT : three.format(ns / 1e6));

function clock(seconds) {
  if (seconds === null) return ABSENT;
  const all = Math.round(seconds);
  const two = (number) => String(number).padStart(2, "0");
  return `${Math.floor(all / 3600)}:${two(Math.floor(all / 60) % 60)}:${two(all % 60)}`;
}

// Only what has changed is touched, so that selections, focus and screen readers are left in peace.
function write(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

function list(parent, texts) {
  while (parent.children.length > texts.length) parent.lastElementChild.remove();
  while (parent.children.length < texts.length) parent.append(document.createElement("li"));
  texts.forEach((text, index) => write(parent.children[index], text));
}

function turning(turn) {
  const what = turn.round ? `round ${turn.round} · ${turn.case_id}` : `load · ${turn.case_id}`;
  if (turn.lives === false) return `Gone: the run that measured ${what} ended without a word`;
  const elsewhere = turn.lives === null ? " (in another container or machine: it may be gone)" : "";
  return `Now: ${what} · since ${clock(turn.seconds)}${elsewhere}`;
}

function exporting(model) {
  const what = `${model.model} (${model.number} of ${model.models} models)`;
  if (model.lives === false) return `Gone: the export of ${what} ended without a word`;
  const elsewhere = model.lives === null ? " (in another container or machine: it may be gone)" : "";
  return `Exporting: ${what} · since ${clock(model.seconds)}${elsewhere}`;
}

function machine(seen) {
  if (seen === null) return "";
  const readings = [[seen.mhz, "MHz"], [seen.temperature_c, "°C"], [seen.power_w, "W"]];
  const parts = readings.filter(([value]) => value !== null).map(([value, unit]) => `${whole.format(value)} ${unit}`);
  if (seen.held_back.length) parts.push(`held back: ${seen.held_back.join(", ")}`);
  return parts.length ? `${seen.of} at the end of the last turn: ${parts.join(" · ")}` : "";
}

function rowOf(row) {
  const line = document.createElement("tr");
  for (let column = 0; column < 12; column += 1) {
    const cell = document.createElement(column ? "td" : "th");
    if (!column) cell.scope = "row";
    if ([3, 4, 6, 7, 8, 9].includes(column)) cell.className = "number";
    if (column === 10) cell.append(Object.assign(document.createElement("span"), { className: "badge" }));
    line.append(cell);
  }
  at("rows").append(line);
  rows.set(row.case_id, line);
  return line;
}

function showRow(row) {
  const line = rows.get(row.case_id) || rowOf(row);
  const texts = [
    row.model, row.backend, row.precision, row.batch_size, row.sequence_length ?? ABSENT, row.way,
    row.planned ? `${row.done}/${row.planned}` : ABSENT, ms(row.median_ns), ms(row.low_ns), ms(row.high_ns),
  ];
  texts.forEach((text, column) => write(line.children[column], String(text)));
  write(line.children[10].firstElementChild, row.state);
  write(line.children[11], row.remarks.join("; "));
  if (line.dataset.state !== row.state) line.dataset.state = row.state;
}

function filter() {
  const words = at("filter").value.toLowerCase().split(/\s+/).filter(Boolean);
  let shown = 0;
  for (const line of rows.values()) {
    const text = line.textContent.toLowerCase();
    line.hidden = !words.every((word) => text.includes(word));
    shown += !line.hidden;
  }
  write(at("shown"), words.length ? `${shown} of ${rows.size} cases` : "");
}

function show(state) {
  if (plan !== state.plan_id || state.rows.length !== rows.size) {
    plan = state.plan_id;
    rows = new Map();
    at("rows").replaceChildren();
  }
  write(at("plan"), state.plan_id);
  write(at("state"), `${STATES[state.state].replace("{command}", state.command)} · ${state.config} · ${state.device}`);
  document.body.dataset.state = state.state;
  document.title = `${state.done}/${state.planned} ${state.state} · Inferometer`;
  at("bar").max = Math.max(1, state.planned);
  at("bar").value = state.done;
  write(at("turns"), `${state.done} of ${state.planned}`);
  write(at("failed"), String(state.failed));
  at("failed").parentElement.classList.toggle("bad", state.failed > 0);
  write(at("run"), state.run_turns === null ? ABSENT : `${state.run_done} of ${state.run_turns}`);
  write(at("elapsed"), clock(state.elapsed_s));
  write(at("left"), clock(state.left_s));
  list(at("now"), [...state.exporting.map(exporting), ...state.turning.map(turning)]);
  write(at("machine"), machine(state.seen));
  write(at("conditions"), state.conditions && `${state.conditions}.`);
  list(at("notes"), state.notes);
  state.rows.forEach(showRow);
  filter();
}

function trouble(text) {
  write(at("trouble"), text);
  at("trouble").hidden = text === "";
  document.body.classList.toggle("stale", text !== "");
}

async function ask() {
  try {
    const answer = await fetch("/state.json", { cache: "no-store", signal: AbortSignal.timeout(PATIENCE_MS) });
    const state = await answer.json();
    if (answer.ok) {
      show(state);
      at("found").hidden = false;
      trouble("");
    } else {
      write(at("state"), "");
      trouble(`${state.problem} ${state.hint}`.trim());
    }
  } catch {
    const since = at("found").hidden ? "" : " The state below is the last one received.";
    trouble(`The watcher no longer answers: start it again.${since}`);
  }
  setTimeout(ask, EVERY_MS);
}

at("filter").addEventListener("input", filter);
ask();
