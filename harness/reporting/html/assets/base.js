const root = document.documentElement;
root.classList.add("js");
const all = (selector, within = document) => [...within.querySelectorAll(selector)];
const made = (tag, text = "", attributes = {}) => {
  const element = document.createElement(tag);
  element.textContent = text;
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return element;
};

