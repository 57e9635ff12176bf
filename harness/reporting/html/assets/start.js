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
// The page is painted before its charts are: the library takes longer to start than all the rest.
requestAnimationFrame(() => setTimeout(() => {
  specs.forEach((_, place) => watcher.observe(place));
  // Printing cannot wait for the library.
  if (specs.size) setTimeout(() => { unpacked ??= library(); }, 1500);
}));

// On a phone the overview is a screen a model: the figures of the first model come before it.
const overview = document.getElementById("overview");
const lastChapter = all("section[data-model]").at(-1);
if (overview && lastChapter && matchMedia("(max-width: 640px)").matches) {
  const link = (section) => document.querySelector(`nav a[href="#${section.id}"]`);
  lastChapter.after(overview);
  link(lastChapter).after(link(overview));
}

const links = new Map(all("nav a").map((link) => [link.hash.slice(1), link]));
const visible = new Set();
const current = new IntersectionObserver((seen) => {
  for (const entry of seen) visible[entry.isIntersecting ? "add" : "delete"](entry.target.id);
  const first = [...links.keys()].find((anchor) => visible.has(anchor));
  links.forEach((link, anchor) => {
    if (anchor === first) link.setAttribute("aria-current", "true");
    else link.removeAttribute("aria-current");
  });
  // On a phone the links are in a line that is longer than the screen.
  const link = links.get(first);
  if (link) link.parentNode.scrollLeft = link.offsetLeft - (link.parentNode.clientWidth - link.offsetWidth) / 2;
}, { rootMargin: "-10% 0px -60%" });
all("main > section").forEach((section) => current.observe(section));
