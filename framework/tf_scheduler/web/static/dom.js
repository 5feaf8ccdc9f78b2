// DOM elements from data. All texts are text nodes, because names, messages and logs come from users.

const SVG = "http://www.w3.org/2000/svg";

// Create an element. `attributes`: name -> text. `content`: nested arrays of elements and texts; null and "" are omitted.
export function el(name, attributes = {}, ...content) {
  return fill(document.createElement(name), attributes, content);
}

export function svg(name, attributes = {}, ...content) {
  return fill(document.createElementNS(SVG, name), attributes, content);
}

export const hint = (...content) => el("p", { class: "soft" }, ...content);

function fill(element, attributes, content) {
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...content.flat(Infinity).filter((part) => part !== null && part !== undefined && part !== ""));
  return element;
}

export const byId = (id) => document.getElementById(id);

// Replace the children of `place` by `content`, keeping equal nodes, so that focus, scroll position and selection remain.
// Children with the same `data-key` count as the same node.
export function show(place, ...content) {
  updateChildren(place, el("div", {}, content));
}

function updateChildren(parent, target) {
  const keyed = new Map();
  for (const child of parent.childNodes) {
    if (child.dataset?.key) keyed.set(child.dataset.key, child);
  }
  let current = parent.firstChild;
  for (const child of [...target.childNodes]) {
    const key = child.dataset?.key;
    const match = key ? keyed.get(key) : current && !current.dataset?.key ? current : null;
    if (match && match.nodeName === child.nodeName) {
      if (match === current) current = current.nextSibling;
      else parent.insertBefore(match, current);
      updateNode(match, child);
    } else {
      parent.insertBefore(child, current);
    }
  }
  while (current) {
    const next = current.nextSibling;
    current.remove();
    current = next;
  }
}

function updateNode(node, target) {
  if (node.nodeType === Node.TEXT_NODE) {
    if (node.data !== target.data) node.data = target.data;
    return;
  }
  for (const { name } of [...node.attributes]) {
    if (!target.hasAttribute(name) && name !== "open") node.removeAttribute(name); // users unfold details
  }
  for (const { name, value } of target.attributes) {
    if (node.getAttribute(name) !== value) node.setAttribute(name, value);
  }
  updateChildren(node, target);
}
