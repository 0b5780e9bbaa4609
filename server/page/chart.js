// Two lines over the last minutes. The elements are in the document; this only moves the lines.

import { partsOf, setText } from './dom.js';
import { rate } from './figures.js';
import { WINDOW_MS } from './rates.js';

const WIDTH = 300;
const HEIGHT = 60;

// The least of 1, 2 and 5 times a power of ten that is not below `value`.
function roundUp(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return power * [1, 2, 5, 10].find((step) => step * power >= value);
}

export class Chart {
  // `fields` of the points, with the names of their lines, as [field, name].
  constructor(figure, fields) {
    this.parts = partsOf(figure);
    this.title = figure.querySelector('figcaption').textContent;
    this.fields = fields;
  }

  draw(points, now) {
    const values = points.flatMap((point) => this.fields.map(([field]) => point[field] ?? 0));
    const top = roundUp(Math.max(1, ...values));
    this.fields.forEach(([field], index) => {
      this.parts[`line${index}`].setAttribute('d', this.path(points, field, now, top));
      setText(this.parts[`now${index}`], rate(points.at(-1)?.[field] ?? null));
    });
    setText(this.parts.top, rate(top));
    const words = this.fields.map(([field, name]) => {
      const most = Math.max(0, ...points.map((point) => point[field] ?? 0));
      return `${name} now ${rate(points.at(-1)?.[field] ?? null)}, at most ${rate(most)}`;
    });
    this.parts.plot.setAttribute('aria-label', `${this.title} in the last five minutes: ${words.join('; ')}`);
  }

  path(points, field, now, top) {
    let path = '';
    let isDrawing = false;
    for (const point of points) {
      if (point.begins) isDrawing = false;
      if (point[field] === null) continue;
      const x = WIDTH * (1 - (now - point.at) / WINDOW_MS);
      const y = HEIGHT - (HEIGHT - 2) * point[field] / top - 1;
      path += `${isDrawing ? 'L' : 'M'}${x.toFixed(2)} ${y.toFixed(2)}`;
      isDrawing = true;
    }
    return path;
  }
}
