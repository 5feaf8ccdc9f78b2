// DOM elements from data. All texts are text nodes, because names, messages and logs come from users.

const SVG = "http://www.w3.org/2000/svg";

// `attributes`: name -> text. `content`: nested arrays of elements and texts; null and "" are omitted.
export function el(name, attributes = {}, ...content) {
  return filled(document.createElement(name), attributes, content);
}

export function svg(name, attributes = {}, ...content) {
  return filled(document.createElementNS(SVG, name), attributes, content);
}

export const soft = (...content) => el("p", { class: "soft" }, ...content);

function filled(element, attributes, content) {
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...content.flat(Infinity).filter((part) => part !== null && part !== undefined && part !== ""));
  return element;
}

export const byId = (id) => document.getElementById(id);

// Replace the children of `place` by `content`, keeping equal nodes, so that focus, scroll position and selection remain.
// Children with the same `data-key` count as the same node.
export function show(place, ...content) {
  match(place, el("div", {}, content));
}

function match(old, wanted) {
  const known = new Map();
  for (const child of old.childNodes) {
    if (child.dataset?.key) known.set(child.dataset.key, child);
  }
  let here = old.firstChild;
  for (const child of [...wanted.childNodes]) {
    const key = child.dataset?.key;
    const same = key ? known.get(key) : here && !here.dataset?.key ? here : null;
    if (same && same.nodeName === child.nodeName) {
      if (same === here) here = here.nextSibling;
      else old.insertBefore(same, here);
      update(same, child);
    } else {
      old.insertBefore(child, here);
    }
  }
  while (here) {
    const next = here.nextSibling;
    here.remove();
    here = next;
  }
}

function update(old, wanted) {
  if (old.nodeType === Node.TEXT_NODE) {
    if (old.data !== wanted.data) old.data = wanted.data;
    return;
  }
  for (const { name } of [...old.attributes]) {
    if (!wanted.hasAttribute(name)) old.removeAttribute(name);
  }
  for (const { name, value } of wanted.attributes) {
    if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  match(old, wanted);
}
