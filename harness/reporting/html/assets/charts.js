// --- charts ------------------------------------------------------------------------------------------------------
const specs = new Map();
const hidden = {};  // filter → values that are switched off
const FILTERS = ["model", "backend", "precision", "batch", "grade"];  // the order of a point's customdata

function palette() {
  const of = (selector, name) => getComputedStyle(document.querySelector(selector))[name];
  return { ink: of("body", "color"), muted: of("figcaption", "color"), page: of(".panel", "backgroundColor"),
           line: of(".panel", "borderTopColor"), font: of("body", "fontFamily") };
}

const channels = (text) => text.startsWith("#")
  ? [1, 3, 5].map((at) => parseInt(text.slice(at, at + 2), 16)) : text.match(/\d+/g).slice(0, 3).map(Number);
const luminance = (text) => channels(text).reduce((sum, value, at) => sum + value * [.2126, .7152, .0722][at], 0);

// Black becomes the colour of the text, and what is nearly as dark becomes brighter.
function onDark(colour, look) {
  if (luminance(colour) < 40) return look.ink;
  if (luminance(colour) > 70) return colour;
  return `#${channels(colour).map((channel) => Math.round(.6 * channel + .4 * 255).toString(16).padStart(2, "0")).join("")}`;
}

// Colours as the report writes them → those of this theme: `page`, `<colour> tint`, and black that would vanish.
function paint(value, look) {
  if (Array.isArray(value)) return value.map((item) => paint(item, look));
  if (value && typeof value === "object") {
    return Object.fromEntries(Object.entries(value).map(([name, item]) => [name, paint(item, look)]));
  }
  if (value === "page") return look.page;
  if (typeof value !== "string" || !/^#[0-9a-f]{6}( tint)?$/i.test(value)) return value;
  const own = luminance(look.page) < 128 ? onDark(value.slice(0, 7), look) : value.slice(0, 7);
  if (!value.endsWith(" tint")) return own;
  const page = channels(look.page);
  const share = luminance(look.page) < 128 ? .55 : .4;
  return `rgb(${channels(own).map((channel, at) => Math.round(share * channel + (1 - share) * page[at]))})`;
}

const shows = (tags) => tags.every((tag, at) => !hidden[FILTERS[at]]?.has(tag));

// The points of a trace that the filters leave: every list in it that is as long as its list of points.
function filtered(value, kept, length) {
  if (Array.isArray(value)) return value.length === length ? value.filter((_, at) => kept[at]) : value;
  if (value && typeof value === "object") {
    return Object.fromEntries(Object.entries(value).map(([name, item]) => [name, filtered(item, kept, length)]));
  }
  return value;
}

// Words in lines of at most `most` characters; a longer word keeps its end, in which cases differ.
function wrapped(text, most) {
  const lines = [""];
  for (const word of text.split(" ")) {
    const part = word.length > most ? `…${word.slice(1 - most)}` : word;
    const longer = `${lines.at(-1)} ${part}`.trim();
    if (longer.length > most && lines.at(-1)) lines.push(part);
    else lines[lines.length - 1] = longer;
  }
  return lines.join("<br>");
}
const linesOf = (text) => text.split("<br>").length;

// A legend is below its panel, in columns; the panel keeps its height.
function legendHeight(data, width) {
  const names = [...new Set(data.filter((trace) => trace.name && trace.showlegend !== false).map((trace) => trace.name))];
  const columns = Math.max(1, Math.floor((width - 80) / (64 + 6.2 * Math.max(0, ...names.map((name) => name.length)))));
  return 19 * Math.ceil(names.length / columns);
}

// size: of a chart that is drawn for paper; without one it has the size of its place.
function draw(place, size) {
  const spec = specs.get(place);
  const look = palette();
  const data = [];
  for (const trace of spec.data) {
    const kept = trace.customdata.map(shows);
    if (!kept.some(Boolean)) continue;
    const hover = trace.hovertext && { hovertemplate: "%{hovertext}<extra></extra>" };
    const shown = { ...hover, ...filtered(trace, kept, kept.length) };
    for (const part of ["marker", "line", "error_x", "error_y"]) if (shown[part]) shown[part] = paint(shown[part], look);
    data.push(shown);
  }
  const width = size?.width ?? place.clientWidth;
  const narrow = width < 420;
  const named = legendHeight(data, width);
  const axis = ({ range, ...given } = {}) => {
    // What a filter leaves may be a small part of the whole range.
    if (!filtering) given.range = range;
    else if (given.type !== "log" && range?.[0] === 0) given.rangemode = "tozero";
    const labels = new Set(data.flatMap((trace) => trace.y));
    const left = given.categoryarray?.filter((name) => labels.has(name));
    // Labels would take a phone's whole width in one line.
    const ticks = left?.map((name) => narrow ? wrapped(name, 22) : name);
    const order = left && { categoryarray: left, tickvals: left, ticktext: ticks };
    const text = narrow ? given.title?.text?.replace(" (", "<br>(") : given.title?.text;
    return { gridcolor: look.line, zerolinecolor: look.line, linecolor: look.line, automargin: true,
             ...given, ...order, title: { ...given.title, text, standoff: 8, font: { size: 12, color: look.muted } } };
  };
  const xaxis = axis(spec.layout.xaxis), yaxis = axis(spec.layout.yaxis);
  // Lines of a label need their height, and so do those of a legend.
  const labels = yaxis.ticktext?.reduce((sum, text) => sum + Math.max(0, 14 * linesOf(text) + 4 - spec.row), 0) ?? 0;
  const height = spec.height + named + labels;
  place.style.height = `${height}px`;
  const layout = {
    ...spec.layout,
    xaxis, yaxis,
    shapes: (spec.layout.shapes ?? []).map((shape) => ({ layer: "below", ...shape, line: { ...shape.line, color: look.ink } })),
    font: { family: look.font, size: narrow ? 11 : 12, color: look.ink },
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    margin: { l: 8, r: 26, t: 18, b: 36 }, hovermode: "closest", dragmode: "zoom",
    hoverlabel: { bgcolor: look.page, bordercolor: look.line, align: "left", font: { color: look.ink, size: 12 } },
    ...size, ...(size && { height }),
    legend: { orientation: "h", traceorder: "normal", x: 0, y: -60 / Math.max(80, height - 60 - named), yanchor: "top", tracegroupgap: 0, font: { size: 11 }, maxheight: 1 },
  };
  Plotly.react(place, data, layout, {
    responsive: true, displaylogo: false, displayModeBar: "hover",
    modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d", "toImage", "sendDataToCloud", "sendChartToCloud"],
    showEditInChartStudio: false, showSendToCloud: false, plotlyServerURL: "",  // nothing leaves the page
  });
}

// The library is most of the page. It is stored compressed and is unpacked once, when a chart comes into view;
// the page's policy knows its hash.
let unpacked;
async function library() {
  document.head.append(made("script", await unzipped(document.getElementById("library").textContent)));
}

const drawn = new Set();
const watcher = new IntersectionObserver(async (seen) => {
  for (const { target, isIntersecting } of seen) {
    if (!isIntersecting) continue;
    watcher.unobserve(target);
    await (unpacked ??= library());
    drawn.add(target);
    draw(target);
  }
}, { rootMargin: "400px" });
const redraw = () => drawn.forEach((place) => draw(place));

const fileName = (...parts) => parts.filter(Boolean).join(" ").replace(/[^\p{L}\p{N}.]+/gu, "-").replace(/^-+|-+$/g, "").slice(0, 120);
const headings = (element) => ["section > h2", "figure > h3"].map((path) => element.closest(path.split(" ")[0])?.querySelector(`:scope > ${path.split(" ")[2]}`)?.textContent.trim());

async function saveChart(button) {
  const panel = button.closest(".panel");
  const place = panel.querySelector(".plot");
  await (unpacked ??= library());
  drawn.add(place);
  draw(place);
  await Plotly.downloadImage(place, {
    format: "svg", width: place.clientWidth, height: place.clientHeight,
    filename: fileName(...headings(place), panel.querySelector("h4")?.textContent.trim()),
  });
}
