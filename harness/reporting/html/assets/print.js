// --- print ---------------------------------------------------------------------------------------------------------
// On paper every chart is drawn and every section is open, in light colours and as wide as a page.
const PAPER = { wide: 660, half: 320 };
let folded = [];
let theme;

addEventListener("beforeprint", () => {
  folded = all("details:not([open]):not(.filters)");
  folded.forEach((section) => { section.open = true; if (section.matches(".profile")) buildOnce(section); });
  theme = root.dataset.theme;
  root.dataset.theme = "light";
  if (!window.Plotly) return;
  for (const place of specs.keys()) {
    drawn.add(place);
    draw(place, { width: place.closest(".wide") ? PAPER.wide : PAPER.half, height: place.clientHeight, autosize: false });
  }
});
addEventListener("afterprint", () => {
  folded.forEach((section) => { section.open = false; });
  setTheme(theme ?? "auto");
  if (window.Plotly) drawn.forEach((place) => Plotly.purge(place));  // else they keep the width of the paper
  redraw();
});
