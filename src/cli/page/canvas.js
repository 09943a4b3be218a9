/* A canvas that draws sharp on every screen, again when its size or the theme changes, and that is
 * worked with mouse, finger and keyboard alike. Charts, lanes, maps of memory and heat maps are
 * made with it. */
'use strict';

/* options: label; height (px); draw(context, width, height); move(x, y) and leave() for the pointer;
 * select(x0, x1) for a stretch that was dragged; reset() for a double click; key(event) returns true
 * for a key that it took. */
T.canvas = (host, options) => {
  const element = T.el('canvas', { role: 'img', tabindex: 0, 'aria-label': options.label || '' });
  const self = { element, width: 0, height: options.height || 200, seen: false, drag: null, waits: false };

  self.redraw = () => {
    if (self.waits || !self.seen) return;
    self.waits = true;
    requestAnimationFrame(() => {
      self.waits = false;
      self.paint();
    });
  };

  self.paint = () => {
    const scale = window.devicePixelRatio || 1;
    self.width = Math.max(40, element.clientWidth);
    self.height = Math.max(20, element.clientHeight);
    const wide = Math.round(self.width * scale), high = Math.round(self.height * scale);
    if (element.width !== wide || element.height !== high) Object.assign(element, { width: wide, height: high });
    const context = element.getContext('2d');
    context.setTransform(scale, 0, 0, scale, 0, 0);
    context.clearRect(0, 0, self.width, self.height);
    context.font = '11px ' + getComputedStyle(document.body).fontFamily;
    options.draw(context, self.width, self.height);
    if (!self.drag) return;
    context.fillStyle = T.colour('select');
    context.fillRect(Math.min(self.drag.from, self.drag.to), 0, Math.abs(self.drag.to - self.drag.from), self.height);
  };

  self.label = (text) => {
    if (element.getAttribute('aria-label') !== text) element.setAttribute('aria-label', text);
  };

  self.setHeight = (height) => {
    element.style.height = height + 'px';
    self.redraw();
  };

  T.canvasPointer(self, options);
  element.addEventListener('keydown', (event) => {
    if (!event.altKey && !event.ctrlKey && !event.metaKey && options.key && options.key(event)) event.preventDefault();
  });
  element.addEventListener('blur', () => options.leave && options.leave());
  new ResizeObserver(() => self.redraw()).observe(element);
  new IntersectionObserver((entries) => {
    self.seen = entries[entries.length - 1].isIntersecting;
    self.redraw();
  }, { rootMargin: '400px' }).observe(element);
  T.canvases.add(self);
  element.style.height = self.height + 'px';
  host.append(element);
  return self;
};

T.canvases = new Set();
T.on('theme', () => {
  for (const canvas of T.canvases)
    if (canvas.element.isConnected) canvas.redraw();
    else T.canvases.delete(canvas);
});

T.canvasPointer = (self, options) => {
  const { element } = self;
  const place = (event) => {
    const box = element.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  };
  element.addEventListener('pointerdown', (event) => {
    if (!options.select || event.button !== 0) return;
    const [x] = place(event);
    self.drag = { from: x, to: x, pointer: event.pointerId };
    element.setPointerCapture(event.pointerId);
  });
  element.addEventListener('pointermove', (event) => {
    const [x, y] = place(event);
    if (self.drag) self.drag.to = x;
    if (options.move) options.move(x, y);
    self.redraw();
  });
  const end = (event) => {
    const drag = self.drag;
    self.drag = null;
    if (drag && event.type === 'pointerup' && Math.abs(drag.to - drag.from) > 6)
      options.select(Math.min(drag.from, drag.to), Math.max(drag.from, drag.to));
    self.redraw();
  };
  element.addEventListener('pointerup', end);
  element.addEventListener('pointercancel', end);
  element.addEventListener('pointerleave', () => {
    if (!self.drag && options.leave && document.activeElement !== element) options.leave();
  });
  element.addEventListener('dblclick', () => options.reset && options.reset());
};

/* Buttons for people without a mouse wheel, or without a mouse. act: zoom(factor), pan(share), reset(). */
T.zoomTools = (what, act) => [
  ['−', 'zoom out', () => act.zoom(2)], ['+', 'zoom in', () => act.zoom(0.5)],
  ['←', 'earlier', () => act.pan(-0.25)], ['→', 'later', () => act.pan(0.25)], ['all', 'all of it', () => act.reset()],
].map(([text, label, onclick]) => T.el('button', { type: 'button', class: 'small', 'aria-label': `${label}: ${what}`, title: label, onclick }, text));

/* A stretch of an axis that can be zoomed: of lanes and maps, which have all that they show. */
T.span = (low, high, changed) => {
  const span = { low, high, from: low, to: high };
  const set = (from, to) => {
    const width = Math.min(Math.max(to - from, (span.high - span.low) * 1e-6 || 1e-9), span.high - span.low);
    span.from = Math.min(Math.max(from, span.low), span.high - width);
    span.to = span.from + width;
    changed();
  };
  span.set = set;
  span.zoom = (factor, around) => {
    const middle = around === undefined ? (span.from + span.to) / 2 : around;
    set(middle - (middle - span.from) * factor, middle + (span.to - middle) * factor);
  };
  span.pan = (share) => set(span.from + share * (span.to - span.from), span.to + share * (span.to - span.from));
  span.reset = () => set(span.low, span.high);
  span.key = (event, around) => {
    if (event.key === '+' || event.key === '=') span.zoom(0.5, around);
    else if (event.key === '-') span.zoom(2, around);
    else if (event.key === '0' || event.key === 'Escape') span.reset();
    else if (event.key === 'PageUp') span.pan(-0.5);
    else if (event.key === 'PageDown') span.pan(0.5);
    else return false;
    return true;
  };
  return span;
};

/* A small box beside the pointer or the cursor of the keyboard, inside its host (position: relative). */
T.tip = (host) => {
  const element = T.el('div', { class: 'tip', hidden: true, 'aria-hidden': 'true' });
  host.append(element);
  return {
    show(x, y, ...children) {
      T.fill(element, ...children);
      element.hidden = false;
      const left = x + 14 + element.offsetWidth > host.clientWidth ? x - 14 - element.offsetWidth : x + 14;
      element.style.left = Math.max(0, Math.min(left, host.clientWidth - element.offsetWidth)) + 'px';
      element.style.top = Math.max(0, y) + 'px';
    },
    hide() {
      element.hidden = true;
    },
  };
};
