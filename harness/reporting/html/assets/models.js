// --- models of a large run -----------------------------------------------------------------------------------------
// The rows of each model are stored compressed; one model is open at a time.
const packedModels = new Map(all("script.model").map((script) => [script.dataset.anchor, script]));

async function openModel(anchor) {
  const place = document.getElementById("opened");
  for (const plot of all(".plot", place)) { watcher.unobserve(plot); specs.delete(plot); drawn.delete(plot); }
  place.innerHTML = await unzipped(packedModels.get(anchor).textContent);
  activate(place);
  specs.forEach((_, plot) => { if (place.contains(plot)) watcher.observe(plot); });
  place.scrollIntoView();
  place.focus({ preventScroll: true });
}
const openNamed = () => {
  const anchor = decodeURIComponent(location.hash.slice(1));
  if (packedModels.has(anchor)) openModel(anchor);
};
addEventListener("hashchange", openNamed);
openNamed();

document.getElementById("find-model")?.addEventListener("input", ({ target }) => {
  const wanted = target.value.trim().toLowerCase();
  for (const row of document.getElementById("all-models").tBodies[0].rows) {
    row.hidden = !row.cells[0].textContent.toLowerCase().includes(wanted);
  }
});
