// Elements of a page. Texts of people, models and servers are only ever set as text.

export function element(name, text = '', className = '') {
  const made = document.createElement(name);
  made.textContent = text;
  made.className = className;
  return made;
}

// Leaves alone what would stay the same: a selection there lasts, and screen readers are not told anew.
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

// The elements within `root` that have a data-part, by its value.
export function partsOf(root) {
  const parts = {};
  for (const part of root.querySelectorAll('[data-part]')) parts[part.dataset.part] = part;
  return parts;
}

// A list of elements that follows a list of items. An item keeps its element, with focus and all, for as
// long as it has the same key. What else `body` has stays before them.
export class Rows {
  // Each element is a copy of `template`; `fill(parts, item)` shows an item in it.
  constructor(body, template, fill) {
    Object.assign(this, { body, template, fill, rows: new Map() });
  }

  show(items, keyOf) {
    const keys = new Set(items.map(keyOf));
    for (const [key, row] of this.rows) {
      if (keys.has(key)) continue;
      row.element.remove();
      this.rows.delete(key);
    }
    let next = [...this.body.children].find((child) => child.dataset.row !== undefined) ?? null;
    for (const item of items) {
      const row = this.rowOf(keyOf(item));
      if (row.element === next) next = next.nextElementSibling;
      else this.body.insertBefore(row.element, next);
      this.fill(row.parts, item);
    }
  }

  rowOf(key) {
    let row = this.rows.get(key);
    if (!row) {
      const made = this.template.content.firstElementChild.cloneNode(true);
      made.dataset.row = '';
      row = { element: made, parts: partsOf(made) };
      this.rows.set(key, row);
    }
    return row;
  }
}
