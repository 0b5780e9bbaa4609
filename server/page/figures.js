// How numbers are written.

const whole = new Intl.NumberFormat('en', { maximumFractionDigits: 0 });

export const UNKNOWN = '\u2013';

export const plural = (count, noun) => `${whole.format(count)} ${noun}${count === 1 ? '' : 's'}`;

export const count = (number) => whole.format(number);

export function duration(ms) {
  if (ms >= 1000) return `${(ms / 1000).toFixed(ms < 10000 ? 2 : 1)} s`;
  return `${ms.toFixed(ms >= 100 ? 0 : ms >= 10 ? 1 : 2)} ms`;
}

// Of something that happened; no more exact than a person wants to know it.
export function age(ms) {
  if (ms < 1000) return `${ms.toFixed(0)} ms`;
  if (ms < 120e3) return `${(ms / 1000).toFixed(0)} s`;
  return ms < 7200e3 ? `${(ms / 60e3).toFixed(0)} min` : `${(ms / 3600e3).toFixed(0)} h`;
}

// `perSecond` may be null, which is not known.
export function rate(perSecond) {
  if (perSecond === null) return UNKNOWN;
  return perSecond > 0 && perSecond < 10 ? perSecond.toFixed(1) : whole.format(perSecond);
}

export function bytes(number) {
  const units = ['B', 'kB', 'MB', 'GB', 'TB', 'PB'];
  let unit = 0;
  while (number >= 1000 && unit < units.length - 1) {
    number /= 1000;
    ++unit;
  }
  return `${unit > 0 && number < 100 ? number.toFixed(1) : number.toFixed(0)} ${units[unit]}`;
}

// Three digits that count, however slow a link is.
export const gigabytes = (perSecond) => (perSecond > 0 ? String(Number(perSecond.toPrecision(3))) : UNKNOWN);

export const share = (part, of) => (of > 0 ? `${(100 * part / of).toFixed(0)}%` : UNKNOWN);
