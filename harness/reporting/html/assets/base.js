const root = document.documentElement;
root.classList.add("js");
const all = (selector, within = document) => [...within.querySelectorAll(selector)];
const made = (tag, text = "", attributes = {}) => {
  const element = document.createElement(tag);
  element.textContent = text;
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return element;
};
// Text that the page holds as gzip in base64.
const unzipped = (text) => {
  const packed = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  return new Response(new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
};
