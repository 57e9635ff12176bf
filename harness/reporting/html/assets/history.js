"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const place = document.getElementById("series");
  // A canvas knows no light-dark(): an element resolves the palette's colour for the theme.
  const probe = document.body.appendChild(document.createElement("span"));
  const colour = (name) => {
    probe.style.color = "var(" + name + ")";
    return getComputedStyle(probe).color;
  };
  const left = 62, top = 8, bottom = 18;
  const MOST_DOTS = 60;

  // Milliseconds with three digits, in the unit that needs no zeros before them.
  const time = (ms) => {
    const [factor, unit] = ms >= 1 || ms <= 0 ? [1, "ms"] : ms >= 0.001 ? [1e3, "µs"] : [1e6, "ns"];
    return (factor * ms).toPrecision(3) + " " + unit;
  };
  const share = (value) => (100 * value).toFixed(1) + "%";

  function scales(series, canvas) {
    const first = series.values[0][0], last = series.values[series.values.length - 1][0];
    const ordered = series.values.map((value) => value[1]).sort((a, b) => a - b);
    const middle = ordered[ordered.length >> 1];
    // A single wide interval must not squeeze all levels: the axis holds every level, and intervals up to a tenth beyond.
    const low = Math.max(ordered[0] * 0.9, Math.min(...series.values.map((value) => value[2])), 0);
    const high = Math.min(ordered[ordered.length - 1] * 1.1, Math.max(...series.values.map((value) => value[3])));
    const span = high - low || middle * 0.1 || 1;
    const width = canvas.clientWidth - left - 8, height = canvas.clientHeight - top - bottom;
    return {
      x: (run) => left + (last > first ? (run - first) / (last - first) : 0.5) * width,
      y: (value) => top + (1 - (Math.min(Math.max(value, low), high) - low) / span) * height,
      low, high, middle,
    };
  }

  function draw(series, canvas) {
    const ratio = window.devicePixelRatio || 1;
    canvas.width = canvas.clientWidth * ratio;
    canvas.height = canvas.clientHeight * ratio;
    const pen = canvas.getContext("2d");
    pen.scale(ratio, ratio);
    const at = scales(series, canvas);
    pen.font = "11px sans-serif";
    pen.fillStyle = colour("--muted");
    for (const value of new Set([at.low, at.high])) pen.fillText(time(value), 0, at.y(value) + 4);
    const ends = [series.values[0], series.values[series.values.length - 1]].map((value) => data.runs[value[0]][0]);
    const day = (text) => text.slice(0, 10);
    const [begin, end] = ends.map(day(ends[0]) === day(ends[1]) ? (text) => text : day);
    pen.fillText(begin, left, canvas.clientHeight - 4);
    if (end !== begin) pen.fillText(end, canvas.clientWidth - 8 - pen.measureText(end).width, canvas.clientHeight - 4);
    pen.fillStyle = colour("--fair-soft");
    pen.beginPath();
    for (const value of series.values) pen.lineTo(at.x(value[0]), at.y(value[3]));
    for (const value of series.values.slice().reverse()) pen.lineTo(at.x(value[0]), at.y(value[2]));
    pen.fill();
    pen.strokeStyle = colour("--accent");
    pen.lineWidth = 1.5;
    pen.beginPath();
    for (const value of series.values) pen.lineTo(at.x(value[0]), at.y(value[1]));
    pen.stroke();
    if (series.values.length <= MOST_DOTS) {
      // One run is no line and no band: its interval is a stroke, its median a dot.
      for (const [run, median, low, high] of series.values) {
        pen.fillStyle = colour("--accent");
        pen.beginPath();
        pen.arc(at.x(run), at.y(median), 2.5, 0, 2 * Math.PI);
        pen.fill();
        if (series.values.length > 1) continue;
        pen.beginPath();
        pen.moveTo(at.x(run), at.y(low));
        pen.lineTo(at.x(run), at.y(high));
        pen.stroke();
      }
    }
    const line = (run, name, dashes) => {
      pen.strokeStyle = colour(name);
      pen.setLineDash(dashes);
      pen.beginPath();
      pen.moveTo(at.x(run - 0.5), top);
      pen.lineTo(at.x(run - 0.5), canvas.clientHeight - bottom);
      pen.stroke();
      pen.setLineDash([]);
    };
    for (const [run] of series.changes) line(run, "--muted", [4, 3]);
    const names = { confirmed: "--bad", candidate: "--accent", refuted: "--muted" };
    for (const [run, state, change] of series.shifts) {
      line(run, names[state], []);
      pen.fillStyle = colour(names[state]);
      pen.fillText(change, at.x(run - 0.5) + 3, top + 10);
    }
  }

  function nearest(series, canvas, event) {
    const at = scales(series, canvas), where = event.clientX - canvas.getBoundingClientRect().left;
    return series.values.reduce((best, value) =>
      Math.abs(at.x(value[0]) - where) < Math.abs(at.x(best[0]) - where) ? value : best);
  }

  const seen = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      if (!entry.isIntersecting) continue;
      draw(entry.target.series, entry.target.querySelector("canvas"));
      seen.unobserve(entry.target);
    }
  }, { rootMargin: "200px" });

  const boxes = data.series.filter((series) => series.values.length).map((series) => {
    const box = document.createElement("div");
    const heading = document.createElement("h3"), text = document.createElement("p"), canvas = document.createElement("canvas");
    heading.textContent = series.name + " · " + series.machine;
    const usual = series.values.length + (series.values.length === 1 ? " run" : " runs") +
      (series.visible === null ? ", too few since the latest change to show a shift" : ", smallest visible shift " + share(series.visible));
    text.textContent = usual;
    canvas.setAttribute("role", "img");
    canvas.setAttribute("aria-label", "Latency of " + series.name + " by run: " + usual);
    canvas.addEventListener("mousemove", (event) => {
      const value = nearest(series, canvas, event), run = data.runs[value[0]];
      const change = series.changes.find((change) => change[0] === value[0]);
      text.textContent = run[0] + " · " + run[1] + " · " + time(value[1]) + " [" + time(value[2]) + ", " + time(value[3]) + "]" +
        (change ? " · " + change[1].replaceAll("\n", "; ") : "");
    });
    canvas.addEventListener("mouseleave", () => { text.textContent = usual; });
    box.className = "series";
    box.series = series;
    box.append(heading, canvas, text);
    place.append(box);
    seen.observe(box);
    return box;
  });

  const filter = document.getElementById("filter"), shown = document.getElementById("shown");
  filter.addEventListener("input", () => {
    const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    let count = 0;
    for (const box of boxes) {
      const name = (box.series.name + " " + box.series.machine).toLowerCase();
      box.hidden = !words.every((word) => name.includes(word));
      count += box.hidden ? 0 : 1;
    }
    shown.textContent = count + " of " + boxes.length;
  });
})();
