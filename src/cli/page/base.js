/* What all parts of the page use: elements, and numbers as people read them. */
'use strict';

/* An element: T.el('button', {class: 'small', onclick: f, 'aria-label': '...'}, 'text', child ...).
 * Texts are always texts, never markup: what runs and models wrote cannot become part of the page. */
T.el = (tag, attributes, ...children) => {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith('on')) element.addEventListener(name.slice(2), value);
    else if (name === 'style') Object.assign(element.style, value);
    else element.setAttribute(name, value === true ? '' : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
};

T.svg = (tag, attributes, ...children) => {
  const element = document.createElementNS('http://www.w3.org/2000/svg', tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
};

T.id = (id) => document.getElementById(id);

T.fill = (element, ...children) => {
  element.replaceChildren(...children.flat().filter((child) => child !== null && child !== undefined));
};

/* Sets a text only where it differs: nothing is drawn or read out again without need. */
T.tell = (element, text) => {
  if (element.textContent !== text) element.textContent = text;
};

T.known = (value) => typeof value === 'number' && Number.isFinite(value);

/* Four digits or so, without noise: 0.003, 2.988, 12,345, 1.2e-7. */
T.num = (value, digits = 4) => {
  if (!T.known(value)) return '–';
  const size = Math.abs(value);
  if (size === 0) return '0';
  if (size >= 1e6) return T.count(value);
  if (size < 1e-3) return value.toExponential(Math.min(2, digits - 1)).replace(/\.?0+e/, 'e');
  if (size >= 1e4 || Number.isInteger(value)) return Math.round(value).toLocaleString('en');
  return String(Number(value.toPrecision(digits)));
};

T.grouped = (value) => (T.known(value) ? Math.round(value).toLocaleString('en') : '–');

T.count = (value) => {
  if (!T.known(value)) return '–';
  const units = ['', ' k', ' M', ' G', ' T', ' P'];
  let at = 0;
  while (Math.abs(value) >= 1000 && at < units.length - 1) {
    value /= 1000;
    at++;
  }
  return Number(value.toPrecision(3)) + units[at];
};

T.bytes = (value) => {
  if (!T.known(value)) return '–';
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];
  let at = 0;
  while (Math.abs(value) >= 1024 && at < units.length - 1) {
    value /= 1024;
    at++;
  }
  return `${Number(value.toPrecision(3))} ${units[at]}`;
};

T.duration = (seconds) => {
  if (!T.known(seconds)) return '–';
  const s = Math.max(0, Math.round(seconds));
  if (s < 60) return seconds < 10 ? `${Number(seconds.toPrecision(2))} s` : `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${s % 60} s`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ${Math.floor(s / 60) % 60} min`;
  return `${Math.floor(s / 86400)} d ${Math.floor(s / 3600) % 24} h`;
};

T.percent = (share) => (T.known(share) ? `${Number((100 * share).toPrecision(3))} %` : '–');

/* Seconds since 1970 or a text of events.jsonl, as the reader's clock has it. */
T.clock = (time) => {
  const date = typeof time === 'number' ? new Date(time * 1000) : new Date(time);
  if (Number.isNaN(date.getTime())) return '–';
  const two = (n) => String(n).padStart(2, '0');
  return `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())} ` +
    `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
};

/* Round numbers from low to high, about `wanted` of them. */
T.ticks = (low, high, wanted) => {
  if (!(high - low > 1e-12 * Math.max(Math.abs(low), Math.abs(high)))) return [low]; /* noise of rounding */
  const rough = (high - low) / Math.max(1, wanted);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].find((m) => m * power >= 0.75 * rough) * power;
  const marks = [];
  for (let at = Math.ceil(low / step - 1e-9); at * step <= high + step * 1e-9 && marks.length < 100; at++) marks.push(at * step + 0); /* never -0 */
  return marks;
};

/* The same where each mark is a multiple of the one before. */
T.logTicks = (low, high) => {
  const marks = [];
  const decades = Math.log10(high / low);
  const parts = decades > 4 ? [1] : decades > 1.2 ? [1, 2, 5] : [1, 1.5, 2, 3, 4, 5, 6, 7, 8, 9];
  for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power++)
    for (const part of parts) {
      const at = part * 10 ** power;
      if (at >= low * (1 - 1e-9) && at <= high * (1 + 1e-9)) marks.push(at);
    }
  return marks.length >= 2 ? marks : [low, high];
};

/* Colours of the style sheet, for canvases: read once for each theme. */
T.colours = {};
T.colour = (name) => {
  if (!(name in T.colours))
    T.colours[name] = getComputedStyle(document.documentElement).getPropertyValue('--' + name).trim();
  return T.colours[name];
};
T.on('theme', () => {
  T.colours = {};
});

/* Of the n-th selected run; and its dashes where there are more runs than colours. */
T.runColour = (n) => T.colour('c' + (n % 8));
T.runDash = (n) => [[], [7, 3], [2, 3]][Math.floor(n / 8) % 3];

/* At most one call in `ms`, the last one always. Waits while nobody looks at the page. */
T.throttle = (ms, call) => {
  let last = 0, timer = 0;
  const now = () => {
    timer = 0;
    last = performance.now();
    call();
  };
  return () => {
    if (!timer) timer = setTimeout(now, Math.max(0, ms - (performance.now() - last)));
  };
};

/* A table: columns [{title, number, cell(row)}]. */
T.table = (caption, columns, rows) => T.el('div', { class: 'scroll', tabindex: 0, role: 'region', 'aria-label': caption },
  T.el('table', {},
    T.el('caption', { class: 'hidden' }, caption),
    T.el('thead', {}, T.el('tr', {}, columns.map((c) => T.el('th', { scope: 'col', class: c.number ? 'n' : null }, c.title)))),
    T.el('tbody', {}, rows.map((row) => T.el('tr', {}, columns.map((c, i) =>
      T.el(i === 0 ? 'th' : 'td', { scope: i === 0 ? 'row' : null, class: c.number ? 'n' : null }, c.cell(row))))))));

/* For what is told to those who do not see it. */
T.announce = (text) => T.tell(T.id('announce'), text);
