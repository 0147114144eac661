'use strict';

// What the pages draw with.

const find = (selector, from = document) => from.querySelector(selector);
const svgNS = 'http://www.w3.org/2000/svg';

function shape(name, attributes, text) {
  const e = document.createElementNS(svgNS, name);
  for (const [k, v] of Object.entries(attributes)) e.setAttribute(k, v);
  if (text !== undefined) e.textContent = text;
  return e;
}
